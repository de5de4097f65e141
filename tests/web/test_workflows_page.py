"""The pages of workflows: what holds them, what is gone, and the way on."""

import re

import httpx
import pytest

from forge_jobs import EnqueueRequest, JobClient, Workflow
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.storage.protocols import Storage
from tests.support.factories import dead, done, only, register, run_one
from tests.support.fleets import HOUR
from tests.web.test_pages import page

pytestmark = pytest.mark.anyio


async def test_a_held_workflow_says_by_what_and_goes_on(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    assert "No workflow is stored" in await page(caller, "/workflows")
    lease = await register(storage, lease_for=HOUR)
    workflow = Workflow("<nightly>")
    noop: EnqueueRequest = EnqueueRequest("tests.noop", max_attempts=1)
    workflow.step("fetch", noop)
    workflow.step("clean", noop, after=["fetch"])
    workflow.step("report", noop, after={"clean": "hold", "fetch": "continue"})
    async with JobClient(storage) as client:
        stored = await client.enqueue_workflow(workflow)
    for end in (done(), dead()):
        await run_one(storage, lease, end)
        await hand_over_once(storage.jobs)
    await storage.jobs.delete(only(stored.steps["fetch"].job_id))

    listed = await page(caller, "/workflows")
    assert "1 workflow, 1 held by failed steps" in listed
    assert "&lt;nightly&gt;" in listed
    text = await page(caller, f"/workflows/{stored.id}")
    assert "1 of 3 steps done, held by clean" in text
    assert "done, no longer stored" in text
    assert "clean, fetch (continue)" in text
    assert f"forge-jobs workflows resume {stored.id}" in text
    [act] = re.findall(r'href="(/act/requeue_jobs\?[^"]+)"', text)
    assert stored.steps["clean"].job_id in act
    assert "Requeue 1 job" in await page(caller, act)
    answer = await caller.post(f"/api/v1/workflows/{stored.id}/resume", json={"reason": "mended"})
    assert answer.json()["changed"] == [stored.steps["clean"].job_id]
    text = await page(caller, f"/workflows/{stored.id}")
    assert "1 of 3 steps done</h1>" in text
    assert "/act/requeue_jobs" not in text
    await page(caller, f"/workflows/{stored.steps['clean'].job_id}", 404)
