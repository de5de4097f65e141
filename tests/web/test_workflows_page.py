"""The pages of workflows: what holds them, what is gone, and the way on."""

import re

import httpx
import pytest

from forge_jobs import EnqueueRequest, JobClient, Workflow
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import dashboard
from forge_jobs.web.pages.job.graphs import MOST_DRAWN
from tests.support.factories import dead, done, only, register, run_one
from tests.support.fleets import HOUR
from tests.web.conftest import ADA, client_of
from tests.web.test_pages import page

pytestmark = pytest.mark.anyio


def drawn(text: str) -> str:
    found = re.search(r'<div class="family wide">(.*?)</div>', text, re.DOTALL)
    return found[1] if found else ""


async def test_a_graph_has_each_step_right_of_those_before(
    sqlite: Storage,
) -> None:
    workflow = Workflow("fan")
    noop: EnqueueRequest = EnqueueRequest("tests.noop")
    workflow.step("a <first>", noop)
    for number in range(4):
        workflow.step(f"part {number}", noop, after=["a <first>"])
    workflow.step("last", noop, after=["a <first>", *(f"part {n}" for n in range(4))])
    large = Workflow("large")
    for number in range(MOST_DRAWN + 1):
        large.step(f"step {number}", noop)
    async with JobClient(sqlite) as client:
        stored = await client.enqueue_workflow(workflow)
        wide = await client.enqueue_workflow(large)

    async with client_of(dashboard(sqlite, authorize=lambda _: ADA)) as client:
        graph = drawn(await page(client, f"/workflows/{stored.id}"))
        assert not drawn(await page(client, f"/workflows/{wide.id}"))
    boxes = re.findall(r'<rect x="(\d+)" y="(\d+)"[^>]*/><text[^>]*>([^<]+)<', graph)
    places = {title: (int(x), int(y)) for x, y, title in boxes}
    assert len(places) == len(set(places.values())) == 6
    columns = sorted({x for x, _ in places.values()})
    assert [places[name][0] for name in ("a &lt;first&gt;", "part 2", "last")] == columns
    assert graph.count('<path class="open"') == 9


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
    graph = drawn(text)
    assert 'aria-label="3 steps with 3 edges, the first ones at the left"' in graph
    assert re.findall(r'<path class="(\w+)"', graph) == ["settled", "held", "settled"]
    assert re.findall(r'class="said"[^>]*>([^<]+)<', graph) == [
        "done, no longer stored", "dead", "held by clean",
    ]  # fmt: skip
    linked = [stored.steps[each].job_id for each in ("clean", "report")]
    assert re.findall(r'href="/jobs/(\w+)"', graph) == linked
    [act] = re.findall(r'href="(/act/requeue_jobs\?[^"]+)"', text)
    assert stored.steps["clean"].job_id in act
    assert "Requeue 1 job" in await page(caller, act)
    answer = await caller.post(f"/api/v1/workflows/{stored.id}/resume", json={"reason": "mended"})
    assert answer.json()["changed"] == [stored.steps["clean"].job_id]
    text = await page(caller, f"/workflows/{stored.id}")
    assert "1 of 3 steps done</h1>" in text
    assert "/act/requeue_jobs" not in text
    await page(caller, f"/workflows/{stored.steps['clean'].job_id}", 404)
