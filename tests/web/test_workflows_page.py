"""The pages of workflows: what holds them, what is gone, and the way on."""

import re
from collections.abc import Sequence

import httpx
import msgspec
import pytest

from forge_jobs import EnqueueRequest, JobClient, Workflow
from forge_jobs.clients.flows.workflows import StepState
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import JobStatus
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import dashboard
from forge_jobs.web.pages.job.graphs import MOST_DRAWN, graph_of
from tests.support.factories import dead, done, only, register, run_one, spoil
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
    async with JobClient(sqlite) as client:
        stored = await client.enqueue_workflow(workflow)

    async with client_of(dashboard(sqlite, authorize=lambda _: ADA)) as client:
        graph = drawn(await page(client, f"/workflows/{stored.id}"))
    boxes = re.findall(r'<rect x="(\d+)" y="(\d+)"[^>]*/><text[^>]*>([^<]+)<', graph)
    places = {title: (int(x), int(y)) for x, y, title in boxes}
    assert len(places) == len(set(places.values())) == 6
    columns = sorted({x for x, _ in places.values()})
    assert [places[name][0] for name in ("a &lt;first&gt;", "part 2", "last")] == columns
    assert graph.count('<path class="open"') == 9


async def test_a_spoilt_graph_says_why_there_are_ids(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    workflow = Workflow("w")
    workflow.step("a", EnqueueRequest("tests.noop"))
    async with JobClient(storage) as client:
        stored = await client.enqueue_workflow(workflow)
    assert "Ids stand" not in await page(caller, f"/workflows/{stored.id}")
    await spoil(storage, stored.id, "{}")
    assert "an edit has spoilt it" in await page(caller, f"/workflows/{stored.id}")


async def test_a_large_workflow_is_folded_and_says_where_it_is_held(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    lease = await register(storage, lease_for=HOUR)
    workflow = Workflow("large")
    workflow.step("fetch", EnqueueRequest("tests.noop", max_attempts=1))
    names = [f"part {number}" for number in range(MOST_DRAWN)]
    for number, name in enumerate(names):
        kind = "tests.rest" if number else "tests.noop"
        workflow.step(name, EnqueueRequest(kind, max_attempts=1), after=["fetch"])
    workflow.step("report", EnqueueRequest("tests.report"), after=names)
    async with JobClient(storage) as client:
        stored = await client.enqueue_workflow(workflow)
    for end in (done(), dead()):
        await run_one(storage, lease, end)
        await hand_over_once(storage.jobs)
    graph = drawn(await page(caller, f"/workflows/{stored.id}"))
    label = "62 steps in 3 levels, folded into 4 boxes with 4 lines, the first ones at the left"
    assert f'aria-label="{label}"' in graph
    texts = re.findall(r"<text[^>]*>([^<]+)</text><text[^>]*>([^<]+)<", graph)
    failed = "part 0"
    assert texts == [
        ("fetch", "done"),
        ("59 tests.rest", "59 waiting"),
        (failed, "dead"),
        ("report", f"held by {failed}"),
    ]
    assert re.findall(r'<path class="(\w+)"', graph) == ["held", "open", "settled", "settled"]
    assert f'href="/jobs/{stored.steps[failed].job_id}"' in graph


def a_step(name: str, after: Sequence[str], kind: str, status: JobStatus) -> StepState:
    return StepState(
        name=name,
        job_id=new_job_id(),
        queue="q",
        kind=kind,
        status=status,
        after=dict.fromkeys(after, "hold"),
        is_done=status is JobStatus.DONE,
        has_failed=status is JobStatus.DEAD,
        held_by=(),
    )


def test_ten_thousand_steps_of_a_thousand_levels_and_many_kinds_are_a_bounded_graph() -> None:
    steps: list[StepState] = []
    for number in range(10_000):
        after = [steps[-10 - at].name for at in range(10) if number >= 20]
        after += [steps[number * at // 9].name for at in range(8) if number >= 100]
        status = JobStatus.DEAD if number == 9_000 else JobStatus.DONE
        steps.append(a_step(f"step {number} of <many>", after, f"kind {number % 37}", status))
    graph = graph_of(steps)
    assert graph is not None
    assert graph.is_folded
    assert len(graph.nodes) <= 60
    assert len(graph.lines) == 200
    [bad] = [each for each in graph.nodes if each.mark == "bad"]
    assert bad.job_id == steps[9_000].job_id
    assert bad.said.startswith("1 dead, ")
    assert len(msgspec.json.encode(graph)) < 40_000


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
