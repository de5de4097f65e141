"""Workflows: named steps, their results, a step that dies, and the end of the whole."""

import asyncio
from datetime import timedelta
from typing import Annotated, Any

import pytest

from forge_jobs import Encryption, FromStep, Workflow, WorkflowState, group_handlers
from forge_jobs.clients.client import JobClient
from forge_jobs.errors import Conflict, JobCancelled, JobDead, KeyMissing, NotFound
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support.factories import get_job
from tests.support.runtimes import a_runtime, ended
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

DONE, DEAD, BLOCKED, CANCELLED = (
    JobStatus.DONE,
    JobStatus.DEAD,
    JobStatus.BLOCKED,
    JobStatus.CANCELLED,
)


class Office:
    """Handlers of a report, and what is broken at the moment."""

    def __init__(self, encryption: Encryption | None = None) -> None:
        self.handlers = HandlerRegistry(encryption=encryption)
        self.handlers.include(group_handlers(encryption=encryption))
        self.broken: set[str] = set()
        self.ran: list[str] = []
        self.handlers.register(self.fetch, "fetch", max_attempts=1)
        self.handlers.register(self.both, "both", max_attempts=1)
        self.handlers.register(self.names, "names")

    async def fetch(self, name: str, number: int = 0) -> int:
        self.ran.append(name)
        if name in self.broken:
            raise ValueError(f"{name} is broken")
        return number

    async def both(
        self, left: Annotated[int, FromStep("left")], right: int = FromStep("right")
    ) -> tuple[int, int]:
        self.ran.append("both")
        return left, right

    async def names(self, ctx: JobContext) -> list[str]:
        found = await ctx.parents()
        return [f"{each.step}: {each.result(int)}" for each in found]

    def of(self, kind: str) -> Handler[..., Any]:
        handler = self.handlers.get(kind)
        assert handler is not None
        return handler

    def step(self, name: str, number: int = 0) -> EnqueueRequest[Any]:
        return self.of("fetch").request(name, number)

    def diamond(self, **options: Any) -> Workflow:
        """Return top, then left and right, then both."""
        workflow = Workflow("diamond", **options)
        # A step may be named before being there.
        workflow.step("both", self.of("both").request(), after=["left", "right"])
        for name, number in (("left", 3), ("right", 4)):
            workflow.step(name, self.step(name, number), after=["top"])
        workflow.step("top", self.step("top"))
        return workflow


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_each_step_runs_after_its_parents_and_reads_their_results_by_name(
    storage: Storage, is_encrypted: bool
) -> None:
    office = Office(Encryption([Encryption.new_key()]) if is_encrypted else None)
    async with a_runtime(storage, office.handlers, 3).start() as handle:
        workflow = office.diamond(tags=["tonight"])
        workflow.step("list", office.of("names").request(), after=["left", "right", "top"])
        stored = await handle.enqueue_workflow(workflow)
        assert await handle.result(stored.steps["both"].job_id, timeout=50) == [3, 4]
        listed = await handle.result(stored.steps["list"].job_id, timeout=50)
        assert sorted(listed) == ["left: 3", "right: 4", "top: 0"]
        assert await handle.result(stored.id, timeout=50) == {"steps": 5}
        state = await handle.client.workflow(stored.id)
        whole = await get_job(storage, stored.id)
    assert (office.ran[0], office.ran[-1]) == ("top", "both")
    assert (state.name, state.done, state.failed, state.waiting) == ("diamond", 5, 0, 0)
    assert (state.is_settled, state.held_by, state.status) == (True, (), DONE)
    assert state.steps["both"].after == {"left": "hold", "right": "hold"}
    assert next(iter(state.steps)) == "top"
    assert set(whole.tags) == {"diamond", "tonight"}
    if is_encrypted:
        async with JobClient(storage) as other:
            with pytest.raises(KeyMissing):
                await other.workflow(stored.id)


async def test_a_dead_step_holds_what_comes_after_and_a_resume_goes_on(storage: Storage) -> None:
    office = Office()
    office.broken.add("left")
    async with a_runtime(storage, office.handlers, 2).start() as handle:
        stored = await handle.enqueue_workflow(office.diamond())
        last = stored.steps["both"].job_id
        await ended(storage, stored.steps["left"].job_id)
        await ended(storage, stored.steps["right"].job_id)
        await held(handle.client, stored.id, "left")
        state = await handle.client.workflow(stored.id)
        assert (state.done, state.failed, state.waiting) == (2, 1, 1)
        assert state.steps["both"].held_by == ("left",)
        assert (state.status, state.is_settled) == (BLOCKED, False)

        # Still broken: the step dies again, and holds again.
        assert (await handle.client.resume_workflow(stored.id)).changed == 1
        await ended(storage, stored.steps["left"].job_id)
        office.broken.clear()
        assert (await handle.client.resume_workflow(stored.id)).changed == 1
        assert await handle.result(last, timeout=50) == [3, 4]
        assert await handle.result(stored.id, timeout=50) == {"steps": 4}
        with pytest.raises(Conflict, match="nothing to resume"):
            await handle.client.resume_workflow(stored.id)
    assert (office.ran.count("left"), office.ran.count("right")) == (3, 1)


async def held(client: JobClient, workflow: str, step: str) -> None:
    """Wait until the end of the step has reached the workflow's own job."""

    async def look() -> bool:
        return bool((await get_job(client.storage, JobId(workflow))).held_by)

    await wait_until(look, description=f"workflow {workflow} is held")
    assert (await client.workflow(workflow)).held_by == (step,)


async def test_steps_that_were_cancelled_with_their_parent_are_resumed_too(
    storage: Storage,
) -> None:
    office = Office()
    office.broken.add("a")
    workflow = Workflow("strict")
    workflow.step("a", office.step("a", 1))
    workflow.step("b", office.step("b"), after={"a": "cancel"})
    workflow.step("c", office.of("names").request(), after={"b": "cancel", "a": "hold"})
    workflow.step("tidy", office.step("tidy"), after={"a": "continue", "b": "continue"})
    async with a_runtime(storage, office.handlers, 2).start() as handle:
        stored = await handle.enqueue_workflow(workflow)
        for name, status in {"a": DEAD, "b": CANCELLED, "c": CANCELLED, "tidy": DONE}.items():
            assert (await ended(storage, stored.steps[name].job_id)).status is status
        state = await handle.client.workflow(stored.id)
        assert (state.done, state.failed, state.held_by) == (1, 3, ("a", "b", "c"))
        office.broken.clear()
        assert (await handle.client.resume_workflow(stored.id)).changed == 3
        result = await handle.result(stored.steps["c"].job_id, timeout=50)
        assert sorted(result) == ["a: 1", "b: 0"]
        assert await handle.result(stored.id, timeout=50) == {"steps": 4}
    # Of the two ends of its parents the step after both has heard once.
    assert office.ran.count("tidy") == 1


async def test_a_cancel_in_mid_fan_out_ends_the_whole_and_may_be_taken_back(
    storage: Storage,
) -> None:
    office = Office()
    started, go_on = asyncio.Event(), asyncio.Event()

    @office.handlers.job("endless")
    async def endless() -> None:
        started.set()
        await go_on.wait()

    workflow = Workflow("fan")
    workflow.step("first", office.step("first"))
    workflow.step("running", endless.request(), after=["first"])
    for number in range(20):
        later = office.step(f"{number}").options(delay=3600)
        workflow.step(f"{number}", later, after=["first"])
        # Would run when its parent is cancelled first.
        workflow.step(f"after {number}", office.step("no"), after={f"{number}": "continue"})
    async with a_runtime(storage, office.handlers, 2).start() as handle:
        stored = await handle.enqueue_workflow(workflow)
        follower = await handle.enqueue(office.step("follower"), after=[stored.id])
        await asyncio.wait_for(started.wait(), 50)
        totals = await handle.client.cancel_workflow(stored.id)
        assert (totals.changed, totals.requested) == (41, 1)
        assert (await ended(storage, follower.job_id)).cause is Cause.PARENT_FAILED
        stopped = await ended(storage, stored.steps["running"].job_id)
        assert stopped.status is CANCELLED
        state = await handle.client.workflow(stored.id)
        assert (state.status, state.done, state.failed) == (CANCELLED, 1, 41)
        assert (state.is_settled, state.held_by, office.ran) == (True, (), ["first"])
        with pytest.raises(JobCancelled):
            await handle.result(stored.id, timeout=50)

        go_on.set()
        assert (await handle.client.resume_workflow(stored.id)).changed == 42
        assert await handle.result(stored.id, timeout=50) == {"steps": 42}
    assert len(office.ran) == 41


async def test_at_the_deadline_the_whole_ends_and_a_resume_lifts_it(storage: Storage) -> None:
    office = Office()
    now = (await storage.jobs.get([await _a_job(storage)])).popitem()[1].enqueued_at
    workflow = Workflow("late", deadline=now)
    own = now - timedelta(hours=1)
    workflow.step("a", office.step("a").options(expires_at=now + timedelta(days=1)))
    workflow.step("b", office.step("b").options(expires_at=own), after=["a"])
    workflow.step("c", office.step("c"), after=["b"])
    client = JobClient(storage, office.handlers)
    stored = await client.enqueue_workflow(workflow)
    while await storage.jobs.expire(100):
        pass
    state = await client.workflow(stored.id)
    assert (state.status, state.failed, state.deadline) == (CANCELLED, 3, now)
    step = await get_job(storage, stored.steps["b"].job_id)
    assert (step.cause, step.expires_at) == (Cause.EXPIRED, own)
    assert (await client.resume_workflow(stored.id)).changed == 4
    state = await client.workflow(stored.id)
    assert (state.deadline, state.waiting, state.status) == (None, 3, BLOCKED)
    await client.aclose()
    async with a_runtime(storage, office.handlers).start() as handle:
        assert await handle.result(stored.id, timeout=50) == {"steps": 3}
    assert office.ran == ["a", "b", "c"]


async def _a_job(storage: Storage) -> Any:
    async with JobClient(storage) as client:
        return (await client.enqueue(EnqueueRequest("tests.noop", queue="elsewhere"))).job_id


async def test_a_step_that_is_not_before_the_job_makes_the_job_dead(storage: Storage) -> None:
    office = Office()
    workflow = Workflow("wrong")
    workflow.step("left", office.step("left"))
    workflow.step("both", office.of("both").request(), after=["left"])
    async with a_runtime(storage, office.handlers).start() as handle:
        stored = await handle.enqueue_workflow(workflow)
        with pytest.raises(JobDead, match="comes after no step 'right'; the steps before"):
            await handle.result(stored.steps["both"].job_id, timeout=50)


async def test_the_blocking_client_knows_workflows(storage: Storage) -> None:
    client = JobClient(storage)
    workflow = Workflow("plain")
    workflow.step("a", EnqueueRequest("tests.noop"))

    def work() -> WorkflowState:
        stored = client.sync.enqueue_workflow(workflow)
        assert client.sync.cancel_workflow(stored.id).changed == 2
        assert client.sync.resume_workflow(stored.id).changed == 2
        return client.sync.workflow(stored.id)

    state = await asyncio.to_thread(work)
    assert (state.waiting, state.steps["a"].kind) == (1, "tests.noop")
    for call in (client.workflow, client.cancel_workflow, client.resume_workflow):
        # A job that is no workflow is none either.
        for other in (state.steps["a"].job_id, new_job_id()):
            with pytest.raises(NotFound, match="there is no workflow"):
                await call(other)
    await client.aclose()
