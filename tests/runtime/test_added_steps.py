"""Steps that are added to a workflow while that one runs, by a step or by a client."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Annotated, Any

import pytest

from forge_jobs import Encryption, Fixed, FromStep, Group, Steps, Workflow, group_handlers
from forge_jobs.clients.client import JobClient
from forge_jobs.errors import Conflict, InvalidInput, JobDead, Locked, NotFound
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import JobStatus
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.storage.protocols import Storage
from tests.support.factories import dead, done, get_job, only, register, run_one, spoil
from tests.support.runtimes import a_runtime

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

NOOP: EnqueueRequest[Any] = EnqueueRequest("tests.noop", max_attempts=1)


class Crawl:
    """A step that finds pages, a step for each page, and one that adds up the pages."""

    def __init__(self, encryption: Encryption | None = None) -> None:
        self.handlers = HandlerRegistry(encryption=encryption)
        self.handlers.include(group_handlers(encryption=encryption))
        self.begun = 0
        register = self.handlers.register
        self.find: Handler[..., Any] = register(self._find, "find", retry=Fixed(timedelta(0)))
        self.page: Handler[..., Any] = register(self._page, "page")
        self.total: Handler[..., Any] = register(self._total, "total")

    async def _find(self, ctx: JobContext) -> int:
        self.begun += 1
        steps = Steps()
        for number in range(3):
            steps.step(f"page {number}", self.page.request(number), after=["start"])
        steps.step("total", self.total.request(), after=[f"page {n}" for n in range(3)])
        outcomes = await ctx.add_steps(steps)
        assert set(outcomes) == {"page 0", "page 1", "page 2", "total"}
        if self.begun == 1:
            raise ConnectionError("died after the steps were added")
        return 10

    async def _page(self, number: int) -> int:
        return number

    async def _total(self, first: Annotated[int, FromStep("page 1")], ctx: JobContext) -> int:
        return first + sum(each.result(int) for each in await ctx.parents())


async def test_a_step_that_is_tried_again_adds_its_steps_once(storage: Storage) -> None:
    crawl = Crawl(Encryption([Encryption.new_key()]))
    workflow = Workflow("crawl")
    workflow.step("start", crawl.page.request(7))
    workflow.step("find", crawl.find.request(), after=["start"])
    async with a_runtime(storage, crawl.handlers, 3).start() as handle:
        stored = await handle.enqueue_workflow(workflow)
        assert await handle.result(stored.id, timeout=50) == {"steps": 6}
        state = await handle.client.workflow(stored.id)
        assert await handle.result(state.steps["total"].job_id, timeout=50) == 4
        # The same call once more, with the steps of the first.
        assert await handle.client.enqueue_workflow(workflow_again(crawl, stored.id)) is not None
    assert crawl.begun == 2
    assert (state.done, state.total, state.is_settled) == (6, 6, True)
    assert state.steps["total"].after == {f"page {number}": "hold" for number in range(3)}
    assert list(state.steps)[-1] == "total"


async def test_a_handler_in_a_thread_adds_steps(storage: Storage) -> None:
    handlers = HandlerRegistry()
    handlers.include(group_handlers())

    def find(ctx: JobContext) -> list[str]:
        steps = Steps()
        steps.step("one", noop.request(1))
        steps.step("many", Group([noop.request(2), noop.request(3)]), after=["one"])
        return sorted(ctx.sync.add_steps(steps))

    async def number(number: int) -> int:
        return number

    noop: Handler[..., Any] = handlers.register(number, "number")
    finder: Handler[..., Any] = handlers.register(find, "find", max_attempts=1)
    workflow = Workflow("crawl")
    workflow.step("find", finder.request())
    async with a_runtime(storage, handlers, 3).start() as handle:
        stored = await handle.enqueue_workflow(workflow)
        assert await handle.result(stored.steps["find"].job_id, timeout=50) == ["many", "one"]
        assert await handle.result(stored.id, timeout=50) == {"steps": 3}
        alone = await handle.enqueue(finder.request())
        with pytest.raises(JobDead, match="is no step of a workflow"):
            await handle.result(alone.job_id, timeout=50)


def workflow_again(crawl: Crawl, workflow_id: JobId) -> Workflow:
    workflow = Workflow("crawl", id=workflow_id)
    workflow.step("start", crawl.page.request(7))
    workflow.step("find", crawl.find.request(), after=["start"])
    return workflow


def a_workflow() -> Workflow:
    workflow = Workflow("w")
    workflow.step("a", NOOP)
    workflow.step("b", NOOP, after=["a"])
    return workflow


def some(**after: Any) -> Steps:
    steps = Steps()
    for name, before in after.items():
        steps.step(name, NOOP, after=before)
    return steps


async def test_what_cannot_be_added_is_refused_and_nothing_is_stored(storage: Storage) -> None:
    lease = await register(storage)
    async with JobClient(storage) as client:
        stored = await client.enqueue_workflow(a_workflow())
        for steps, problem in (
            (some(c=["a"], b=["c"]), "'b': is there already"),
            (some(c=["d"]), "'c': comes after 'd', which is no step"),
            (some(c=["d"], d=["c"]), "has a circle"),
            ({"c": NOOP}, r"give Steps\(\)"),
        ):
            with pytest.raises(InvalidInput, match=problem):
                await client.add_steps(stored.id, steps)  # type: ignore[arg-type]
        many = Steps()
        for number in range(9_999):
            many.step(f"{number}", NOOP)
        with pytest.raises(InvalidInput, match="10001 steps"):
            await client.add_steps(stored.id, many)
        with pytest.raises(NotFound, match="there is no workflow"):
            await client.add_steps(new_job_id(), some(c=["a"]))
        with pytest.raises(InvalidInput, match="is an EnqueuedWorkflow; give an id"):
            await client.add_steps(stored, some(c=["a"]))  # type: ignore[arg-type]
        await client.add_steps(stored.id, some(c=["a"]))
        with pytest.raises(InvalidInput, match="'c': is there already"):
            await client.add_steps(stored.id, some(c=["b"]))
        assert sum((await storage.jobs.counts())["default"].by_status.values()) == 4

        for _ in range(3):
            await run_one(storage, lease, done())
            await hand_over(storage)
        assert (await client.workflow(stored.id)).status is JobStatus.PENDING
        with pytest.raises(Conflict, match="has settled"):
            await client.add_steps(stored.id, some(d=["a"]))
        # What was added before is a repeat still.
        assert set(await client.add_steps(stored.id, some(c=["a"]))) == {"c"}
        assert sum((await storage.jobs.counts())["default"].by_status.values()) == 4


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "encrypted"])
async def test_other_content_under_a_name_that_was_added_is_refused(
    storage: Storage, is_encrypted: bool
) -> None:
    encryption = Encryption([Encryption.new_key()]) if is_encrypted else None

    def steps(kind: str, **payload: Any) -> Steps:
        made = Steps()
        made.step("c", EnqueueRequest(kind, payload), after=["a"])
        made.step("many", Group([EnqueueRequest(kind, payload)]), after=["c"])
        return made

    async with JobClient(storage, encryption=encryption) as client:
        stored = await client.enqueue_workflow(a_workflow())
        first = await client.add_steps(stored.id, steps("page", path="/a", depth=1))
        again = await client.add_steps(stored.id, steps("page", depth=1, path="/a"))
        assert {name: each.job_id for name, each in again.items()} == {
            name: each.job_id for name, each in first.items()
        }
        for other in (steps("page", path="/b", depth=1), steps("image", path="/a", depth=1)):
            with pytest.raises(Conflict, match="step 'c' is in the workflow already"):
                await client.add_steps(stored.id, other)
        # Of a group each member counts.
        other = Steps()
        other.step("many", Group([EnqueueRequest("page", {"path": "/c"})]), after=["c"])
        other.step("new", NOOP)
        with pytest.raises(Conflict, match="another kind or payload"):
            await client.add_steps(stored.id, other)
        state = await client.workflow(stored.id)
        assert set(state.steps) == {"a", "b", "c", "many"}
        assert (state.failed, state.status) == (0, JobStatus.BLOCKED)


async def test_a_graph_that_an_edit_has_spoilt_is_shown_by_ids_and_takes_no_steps(
    storage: Storage,
) -> None:
    async with JobClient(storage) as client:
        stored = await client.enqueue_workflow(a_workflow())
        for payload in ('{"name": 5, "steps": []}', "{}", '{"name": "w", "steps": {"a": 1}}'):
            await spoil(storage, stored.id, payload)
            state = await client.workflow(stored.id)
            assert set(state.steps) == {each.job_id for each in stored.steps.values()}
            assert (state.name, state.waiting, state.status) == ("", 2, JobStatus.BLOCKED)
            with pytest.raises(Conflict, match=r"graph of workflow .* cannot be read"):
                await client.add_steps(stored.id, some(c=["a"]))
        assert (await client.cancel_workflow(stored.id)).changed == 3
        assert (await client.resume_workflow(stored.id)).changed == 3


async def hand_over(storage: Storage) -> None:
    while await hand_over_once(storage.jobs):
        pass


async def test_two_add_steps_at_once_and_the_whole_waits_for_both(storage: Storage) -> None:
    lease = await register(storage)
    async with JobClient(storage) as client:
        stored = await client.enqueue_workflow(a_workflow())
        both = some(same=["a"])
        added = await asyncio.gather(
            *(client.add_steps(stored.id, some(**{f"c{n}": ["b"]})) for n in range(3)),
            client.add_steps(stored.id, both),
            client.add_steps(stored.id, both),
        )
        assert added[3]["same"].job_id == added[4]["same"].job_id
        state = await client.workflow(stored.id)
        assert set(state.steps) == {"a", "b", "c0", "c1", "c2", "same"}
        assert (state.waiting, state.status) == (6, JobStatus.BLOCKED)
        # One that dies holds the whole, as any other, and is resumed.
        last = [await end(storage, lease, done()) for _ in range(5)]
        failed = await end(storage, lease, dead())
        assert len({*last, failed}) == 6
        state = await client.workflow(stored.id)
        assert (len(state.held_by), state.status) == (1, JobStatus.BLOCKED)
        assert (await client.resume_workflow(stored.id)).changed == 1
        assert await end(storage, lease, done()) == failed
        assert (await client.workflow(stored.id)).status is JobStatus.PENDING


async def end(storage: Storage, lease: Any, how: Any) -> JobId:
    job_id = await run_one(storage, lease, how)
    await hand_over(storage)
    return job_id


class _Settling(JobClient):
    """A client that stores its steps just before the workflow is cancelled."""

    async def _stored(self, *args: Any) -> Any:
        outcomes = await super()._stored(*args)
        [gate] = {job.metadata["forge_jobs.workflow"] for job in await self._all(outcomes)}
        await self.storage.jobs.cancel(only(JobId(gate)))
        return outcomes

    async def _all(self, outcomes: Any) -> Any:
        return (await self.storage.jobs.get([each.job_id for each in outcomes])).values()


async def test_steps_that_come_too_late_are_cancelled(storage: Storage) -> None:
    async with JobClient(storage) as client, _Settling(storage) as late:
        stored = await client.enqueue_workflow(a_workflow())
        with pytest.raises(Conflict, match="is cancelled"):
            await late.add_steps(stored.id, some(c=["a"], d=["c"]))
        counts = (await storage.jobs.counts())["default"].by_status
        assert (counts[JobStatus.CANCELLED], counts[JobStatus.BLOCKED]) == (3, 1)
        assert set((await client.workflow(stored.id)).steps) == {"a", "b"}


class _Late(JobClient):
    """A client that acts as another caller at a moment of its call.

    :ivar looked: the graph has been read, and nothing is stored
    :ivar stored: the steps are stored, and the graph is about to have their names
    """

    looked: Callable[[], Awaitable[Any]] | None = None
    stored: Callable[[], Awaitable[Any]] | None = None

    async def _stored(self, *args: Any) -> Any:
        act, self.looked = self.looked, None
        if act is not None:
            await act()
        return await super()._stored(*args)

    async def _noted(self, *args: Any) -> bool:
        act, self.stored = self.stored, None
        if act is not None:
            await act()
        return await super()._noted(*args)


def in_a_row(**requests: EnqueueRequest[Any]) -> Steps:
    steps, before = Steps(), ["a"]
    for name, request in requests.items():
        steps.step(name, request, after=before)
        before = [name]
    return steps


@pytest.mark.parametrize("moment", ["looked", "stored"])
async def test_of_two_uses_of_one_name_at_once_one_is_taken_back(
    storage: Storage, moment: str
) -> None:
    late = _Late(storage)
    async with JobClient(storage) as client, late:
        stored = await client.enqueue_workflow(a_workflow())
        other = some(same=["a"], c=["same"])
        setattr(late, moment, partial(client.add_steps, stored.id, other))
        mine = some(same=["a"], d=["same"], c=["d"])
        mine.step("many", Group([NOOP, NOOP]), after=["c"])
        with pytest.raises(InvalidInput, match="'c': is there already"):
            await late.add_steps(stored.id, mine)
        # What the other caller has added stays, also where both wanted the same step.
        counts = (await storage.jobs.counts())["default"].by_status
        assert counts[JobStatus.CANCELLED] == 5
        state = await client.workflow(stored.id)
        assert set(state.steps) == {"a", "b", "same", "c"}
        assert (state.failed, state.status) == (0, JobStatus.BLOCKED)


async def test_steps_of_many_calls_are_taken_back_when_a_later_one_is_refused(
    storage: Storage,
) -> None:
    late = _Late(storage)
    async with JobClient(storage) as client, late:
        stored = await client.enqueue_workflow(a_workflow())
        other = in_a_row(last=EnqueueRequest("tests.other"))
        late.looked = partial(client.add_steps, stored.id, other)
        mine = Steps()
        for number in range(200):
            mine.step(f"{number}", NOOP, after=["b"])
        mine.step("last", NOOP, after=["a"])
        with pytest.raises(Conflict, match=r"step 'last' .* another kind .* a name of its own"):
            await late.add_steps(stored.id, mine)
        counts = (await storage.jobs.counts())["default"].by_status
        assert counts[JobStatus.CANCELLED] == 200
        assert set((await client.workflow(stored.id)).steps) == {"a", "b", "last"}


@pytest.mark.parametrize("verb", ["edit", "await_also"])
async def test_a_whole_that_another_call_holds_for_a_moment_is_asked_again(
    storage: Storage, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, act = 0, getattr(storage.jobs, verb)

    async def locked(*args: Any, **options: Any) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise Locked("an open transaction holds the job")
        await act(*args, **options)

    async with JobClient(storage) as client:
        stored = await client.enqueue_workflow(a_workflow())
        monkeypatch.setattr(storage.jobs, verb, locked)
        assert set(await client.add_steps(stored.id, some(c=["a"]))) == {"c"}
        state = await client.workflow(stored.id)
        assert (state.total, state.failed, asked) == (3, 0, 2)


class _Dying(JobClient):
    """A client whose process ends once its steps are stored, or once the graph has their names."""

    def __init__(self, storage: Storage, method: str) -> None:
        super().__init__(storage)
        setattr(self, method, self._ends)

    async def _ends(self, *args: Any) -> bool:
        raise ConnectionError("the process ended here")


@pytest.mark.parametrize("method", ["_noted", "_joined"])
async def test_a_repeat_completes_what_a_caller_left_that_died(
    storage: Storage, method: str
) -> None:
    lease = await register(storage)
    async with JobClient(storage) as client, _Dying(storage, method) as dying:
        stored = await client.enqueue_workflow(a_workflow())
        with pytest.raises(ConnectionError):
            await dying.add_steps(stored.id, some(c=["a"]))
        # The whole does not wait for the step yet.
        assert (await client.workflow(stored.id)).total == 2
        for _ in range(2):
            added = await client.add_steps(stored.id, some(c=["a"]))
        state = await client.workflow(stored.id)
        assert set(state.steps) == {"a", "b", "c"}
        assert (state.waiting, state.status) == (3, JobStatus.BLOCKED)
        for _ in range(3):
            await end(storage, lease, done())
        assert (await client.workflow(stored.id)).status is JobStatus.PENDING
        assert await client.add_steps(stored.id, some(c=["a"])) == added


async def test_a_whole_that_settled_without_the_steps_of_a_dead_caller_says_so(
    storage: Storage,
) -> None:
    lease = await register(storage)
    async with JobClient(storage) as client, _Dying(storage, "_joined") as dying:
        stored = await client.enqueue_workflow(a_workflow())
        with pytest.raises(ConnectionError):
            await dying.add_steps(stored.id, some(c=["b"]))
        for _ in range(2):
            await end(storage, lease, done())
        assert (await client.workflow(stored.id)).status is JobStatus.PENDING
        with pytest.raises(Conflict, match="has settled"):
            await client.add_steps(stored.id, some(c=["b"]))


async def test_the_blocking_client_adds_steps(storage: Storage) -> None:
    client = JobClient(storage)
    stored = await client.enqueue_workflow(a_workflow())
    added = await asyncio.to_thread(client.sync.add_steps, stored.id, some(c=["a"]))
    assert (await get_job(storage, added["c"].job_id)).status is JobStatus.BLOCKED
    await client.aclose()
