"""Workflows as stored: what is refused, repeats, steps that are gone, depth and size."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from forge_jobs import Workflow
from forge_jobs.clients.client import JobClient
from forge_jobs.errors import Conflict, InvalidInput, NotFound
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.edges import STEP, WORKFLOW, WORKFLOW_KIND
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import JobStatus, Unique
from forge_jobs.model.processes import PodLease
from forge_jobs.policy.explanations import Reason
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.storage.protocols import Storage
from tests.support.factories import dead, done, enqueue_one, get_job, only, register, run_one

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

NO_ZONE = datetime(2030, 1, 1, tzinfo=UTC).replace(tzinfo=None)
NOOP: EnqueueRequest[Any] = EnqueueRequest("tests.noop", max_attempts=1)


def chain(length: int, word: str = "hold", **options: Any) -> Workflow:
    """Return steps one after the other, the last one added first."""
    workflow = Workflow("chain", **options)
    for number in reversed(range(length)):
        after = {f"{number - 1}": word} if number else {}
        workflow.step(f"{number}", NOOP, after=after)  # type: ignore[arg-type]
    return workflow


async def hand_over(storage: Storage) -> None:
    while await hand_over_once(storage.jobs):
        pass


async def ends(storage: Storage, lease: PodLease, end: Any) -> JobId:
    """Run the next job to this end, and tell those that come after."""
    job_id = await run_one(storage, lease, end)
    await hand_over(storage)
    return job_id


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edges", "circle"),
    [
        ({"a": ["a"]}, "a -> a"),
        (
            {"a": ["c"], "b": ["a"], "c": ["b"]},
            "a -> c -> b -> a|c -> b -> a -> c|b -> a -> c -> b",
        ),
        (
            {f"{n}": [f"{(n + 1) % 1000}"] for n in range(1000)},
            r"\d+ -> \d+ -> \d+ -> \d+ -> \.\.\. -> .*",
        ),
    ],
    ids=["itself", "three", "a thousand"],
)
async def test_a_circle_is_refused_before_anything_is_stored(
    storage: Storage, edges: dict[str, list[str]], circle: str
) -> None:
    workflow = Workflow("w")
    workflow.step("apart", NOOP)
    for name, after in edges.items():
        workflow.step(name, NOOP, after=after)
    async with JobClient(storage) as client:
        with pytest.raises(InvalidInput, match=f"has a circle: ({circle})"):
            await client.enqueue_workflow(workflow)
    assert await storage.jobs.counts() == {}


async def test_what_is_no_workflow_is_refused_and_nothing_is_stored(storage: Storage) -> None:
    unknown = Workflow("w")
    unknown.step("a", NOOP, after=["b"])
    wrong = chain(300)
    wrong.step("wrong", NOOP.options(priority=1_000))
    many = Workflow("w")
    for number in range(10_001):
        many.step(f"{number}", NOOP)
    heavy = Workflow("w")
    for number in range(400):
        heavy.step(
            f"{number:0200}", NOOP, after=[f"{each:0200}" for each in range(min(number, 20))]
        )
    naive = Workflow("w", deadline=NO_ZONE.replace(tzinfo=UTC))
    naive.step("a", NOOP.options(expires_at=NO_ZONE))
    no_time = Workflow("w", deadline=NO_ZONE.replace(tzinfo=UTC))
    no_time.step("a", NOOP.options(expires_at=timedelta(hours=1)))  # type: ignore[arg-type]
    async with JobClient(storage) as client:
        for workflow, problem in (
            (unknown, "'a': comes after 'b', which is no step"),
            (Workflow("w"), "has 0 steps"),
            (wrong, "priority"),
            (many, "has 10001 steps"),
            (heavy, "has a graph of [0-9]+ bytes"),
            (naive, "expires_at"),
            (no_time, "expires_at"),
            ([NOOP], "give Workflow"),
        ):
            with pytest.raises(InvalidInput, match=problem):
                await client.enqueue_workflow(workflow)  # type: ignore[arg-type]
    assert await storage.jobs.counts() == {}


def test_a_wrong_step_is_refused_when_it_is_added() -> None:
    workflow = Workflow("w")
    assert workflow.step("a", NOOP) == "a"
    wrong: list[tuple[str, Any, Any, str]] = [
        ("a", NOOP, (), "'a' is there already"),
        ("b,c", NOOP, (), "contains a comma"),
        ("b", "tests.noop", (), "give EnqueueRequest"),
        ("b", NOOP.options(id=new_job_id()), (), "has an id"),
        ("b", NOOP.options(unique_key="k"), (), "has a unique key"),
        ("b", NOOP.options(unique=Unique("k")), (), "has a unique key"),
        ("b", NOOP, "a", "names of steps in a list"),
        ("b", NOOP, {"a": "note"}, "give hold, cancel or continue"),
    ]
    for name, request, after, problem in wrong:
        with pytest.raises(InvalidInput, match=problem):
            workflow.step(name, request, after=after)
    assert list(workflow.requests) == ["a"]
    deadlines: list[tuple[Any, str]] = [
        (NO_ZONE, "has no time zone"),
        (timedelta(hours=1), "is no datetime; give a datetime with a time zone"),
    ]
    for deadline, problem in deadlines:
        with pytest.raises(InvalidInput, match=problem):
            Workflow("w", deadline=deadline)


# -- what is stored ----------------------------------------------------------------------------


async def test_steps_say_what_they_are_and_have_no_unique_key(storage: Storage) -> None:
    other = await enqueue_one(storage)
    workflow = chain(2)
    workflow.step("own", NOOP.options(after=[other], metadata={"k": "v"}), after=["0"])
    async with JobClient(storage) as client:
        stored = await client.enqueue_workflow(workflow)
        [own, first] = [await get_job(storage, stored.steps[each].job_id) for each in ("own", "0")]
        assert own.metadata == {"k": "v", STEP: "own", WORKFLOW: stored.id}
        assert set(own.waits_for) == {other, first.id}
        assert (await get_job(storage, stored.id)).queue == first.queue
        # The end of the whole may lie in another queue.
        elsewhere = await client.enqueue_workflow(chain(1, queue="elsewhere"))
        assert (await client.workflow(elsewhere.id)).queue == "elsewhere"


async def test_a_repeat_completes_what_a_caller_left_that_died(storage: Storage) -> None:
    workflow = chain(450, id=new_job_id())
    assert workflow.id is not None
    for stored in range(3):
        dying = _Dying(storage, stored)
        with pytest.raises(ConnectionError):
            await dying.enqueue_workflow(workflow)
        for call in (dying.workflow, dying.cancel_workflow, dying.resume_workflow):
            with pytest.raises(NotFound, match="stored in part" if stored else "not stored yet"):
                await call(workflow.id)
        await dying.aclose()
    async with JobClient(storage) as client:
        first = await client.enqueue_workflow(workflow)
        assert await client.enqueue_workflow(workflow) == first
        counts = (await storage.jobs.counts())["default"].by_status
        assert (counts[JobStatus.PENDING], counts[JobStatus.BLOCKED]) == (1, 450)
        assert sum(counts.values()) == 451
        with pytest.raises(Conflict):
            await client.enqueue_workflow(chain(449, id=workflow.id))


async def test_a_step_that_failed_was_removed_and_stored_again_is_told_from_one_to_come(
    storage: Storage,
) -> None:
    lease = await register(storage)
    workflow = chain(2, id=new_job_id())
    async with JobClient(storage) as client:
        steps = (await client.enqueue_workflow(workflow)).steps
        first, last = steps["0"].job_id, steps["1"].job_id
        await ends(storage, lease, dead())
        await client.delete(first)
        await hand_over(storage)
        await client.enqueue_workflow(workflow)
        assert await ends(storage, lease, done()) == first
        told = await client.explain(last)
        assert told.reason is Reason.BLOCKED_BY_PARENTS
        assert "all that it waited for has ended; about to be freed; where not within" in told.text
        assert told.help == f"forge-jobs jobs release-held {last}"
        assert (await client.release_held(last)).changed == 1
        assert await run_one(storage, lease, done()) == last
        # The whole is held by the one that was removed, and waits to hear of the last step.
        await client.release_held(str(workflow.id))
        told = await client.explain(str(workflow.id))
        assert told.text.endswith("all that it waited for has ended; about to be freed")
        assert told.help == ""


class _Dying(JobClient):
    """A client whose process ends after so many calls of the store."""

    def __init__(self, storage: Storage, calls: int) -> None:
        super().__init__(storage)
        self._left = calls

    async def enqueue_many(self, *args: object, **options: object) -> list[Any]:
        if not self._left:
            raise ConnectionError("the process ended here")
        self._left -= 1
        return await super().enqueue_many(*args, **options)  # type: ignore[arg-type]


async def test_the_graph_and_how_steps_ended_outlive_the_steps(storage: Storage) -> None:
    lease = await register(storage)
    async with JobClient(storage) as client:
        stored = await client.enqueue_workflow(chain(3))
        ids = [stored.steps[f"{number}"].job_id for number in range(3)]
        assert await ends(storage, lease, done()) == ids[0]
        assert await ends(storage, lease, dead()) == ids[1]
        await storage.jobs.delete(only(*ids[:2]))
        state = await client.workflow(stored.id)
        assert (state.done, state.failed, state.waiting) == (1, 1, 1)
        assert (state.held_by, state.steps["2"].held_by) == (("1",), ("1",))
        gone = state.steps["1"]
        assert (gone.status, gone.kind, gone.has_failed, gone.is_done) == (None, "", True, False)
        assert gone.after == {"0": "hold"}
        with pytest.raises(NotFound, match=f"1 steps .* {ids[1]}"):
            await client.resume_workflow(stored.id)
        # Operators let the rest run without the step.
        await client.release_held([ids[2], stored.id])
        assert await ends(storage, lease, done()) == ids[2]
        assert (await client.workflow(stored.id)).status is JobStatus.PENDING


async def test_a_resume_that_died_midway_is_repeated(storage: Storage) -> None:
    lease = await register(storage)
    async with JobClient(storage) as client:
        stored = await client.enqueue_workflow(chain(3, "cancel"))
        ids = [stored.steps[f"{number}"].job_id for number in range(3)]
        assert await ends(storage, lease, dead()) == ids[0]
        await client.cancel_workflow(stored.id)
        # The process that resumed died after the first step, and that has ended meanwhile.
        await client.requeue(ids[0])
        assert await ends(storage, lease, done()) == ids[0]
        assert (await client.resume_workflow(stored.id)).changed == 3
        for expected in ids[1:]:
            assert await ends(storage, lease, done()) == expected
        assert (await client.workflow(stored.id)).status is JobStatus.PENDING


# -- depth and size ----------------------------------------------------------------------------


@pytest.mark.long
async def test_a_thousand_levels_are_cancelled_and_resumed(storage: Storage) -> None:
    lease = await register(storage, lease_for=timedelta(hours=1))
    async with JobClient(storage) as client:
        stored = await client.enqueue_workflow(chain(1_000, "cancel"))
        first = stored.steps["0"].job_id
        assert await ends(storage, lease, dead()) == first
        state = await client.workflow(stored.id)
        assert (state.failed, state.waiting, len(state.held_by)) == (1_000, 0, 1_000)
        assert (await client.resume_workflow(stored.id)).changed == 1_000
        state = await client.workflow(stored.id)
        assert (state.failed, state.waiting) == (0, 1_000)
        waiting = [each.status for each in state.steps.values()]
        assert waiting == [JobStatus.PENDING] + [JobStatus.BLOCKED] * 999
        for number in range(3):
            assert await ends(storage, lease, done()) == stored.steps[f"{number}"].job_id
        assert (await client.workflow(stored.id)).done == 3


@pytest.mark.long
async def test_a_workflow_of_ten_thousand_steps(storage: Storage) -> None:
    """A hundred chains of a hundred steps behind one step."""
    lease = await register(storage, lease_for=timedelta(hours=1))
    workflow = Workflow("large")
    workflow.step("first", NOOP)
    for number in range(9_999):
        after = "first" if number < 101 else f"{number - 101}"
        workflow.step(f"{number}", NOOP, after=[after])
    async with JobClient(storage) as client:
        stored = await client.enqueue_workflow(workflow)
        assert await ends(storage, lease, done()) == stored.steps["first"].job_id
        state = await client.workflow(stored.id)
        assert (state.total, state.done, state.waiting) == (10_000, 1, 9_999)
        assert (await get_job(storage, stored.id)).kind == WORKFLOW_KIND
        assert (await client.cancel_workflow(stored.id)).changed == 10_000
        await hand_over(storage)
        state = await client.workflow(stored.id)
        assert (state.failed, state.status) == (9_999, JobStatus.CANCELLED)
        assert (await client.resume_workflow(stored.id)).changed == 10_000
        state = await client.workflow(stored.id)
        assert (state.done, state.failed, state.waiting) == (1, 0, 9_999)
        ready = [name for name, each in state.steps.items() if each.status is JobStatus.PENDING]
        assert len(ready) == 101
        assert await ends(storage, lease, done()) in [stored.steps[name].job_id for name in ready]
