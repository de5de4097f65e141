"""Jobs that wait for jobs: edges at enqueue, handovers, deliveries."""

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import NotFound
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import After, Cause, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Delivery, Handover
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    MICROSECOND,
    SECOND,
    claim,
    claim_one,
    counters,
    dead,
    done,
    enqueue_one,
    failed,
    finish,
    get_job,
    new_job,
    only,
    register,
    run_one,
    snoozed,
)

pytestmark = pytest.mark.anyio

_ENDINGS = {JobStatus.DONE: done(), JobStatus.DEAD: dead()}


async def parent_and_child(
    storage: Storage, on_failure: str = "cancel", **overrides: object
) -> tuple[JobId, JobId]:
    parent = await enqueue_one(storage)
    edge = After(parent, on_failure)  # type: ignore[arg-type]
    return parent, await enqueue_one(storage, after=(edge,), **overrides)


async def end(storage: Storage, lease: PodLease, job_id: JobId, status: JobStatus) -> None:
    """Bring a pending job, the only one due, to a terminal status."""
    if status is JobStatus.CANCELLED:
        assert (await storage.jobs.cancel(only(job_id))).changed == (job_id,)
    else:
        assert await run_one(storage, lease, _ENDINGS[status]) == job_id


async def news(storage: Storage) -> list[Handover]:
    return await storage.jobs.handovers(100)


async def deliver_all(storage: Storage, action: str) -> int:
    return await storage.jobs.deliver([Delivery(each, action) for each in await news(storage)])


async def test_a_job_with_parents_is_blocked_and_says_by_whom(
    storage: Storage, lease: PodLease
) -> None:
    parents = [await enqueue_one(storage, delay=DAY) for _ in range(3)]
    child = await enqueue_one(storage, after=tuple(After(p) for p in reversed(parents)))
    job = await get_job(storage, child)
    assert (job.status, job.waits_for) == (JobStatus.BLOCKED, tuple(parents))
    assert await claim(storage, lease) == []
    assert await news(storage) == []


async def test_parents_may_be_earlier_in_the_same_call(storage: Storage) -> None:
    parent = new_job()
    child = new_job(after=(After(parent.id),))
    grandchild = new_job(after=(After(child.id), After(parent.id)))
    await storage.jobs.enqueue([parent, child, grandchild])
    assert (await get_job(storage, grandchild.id)).waits_for == (parent.id, child.id)


async def test_a_missing_parent_is_an_error_and_nothing_is_stored(storage: Storage) -> None:
    known, missing = await enqueue_one(storage), new_job_id()
    batch = [new_job(), new_job(after=(After(known), After(missing)))]
    with pytest.raises(NotFound, match=missing):
        await storage.jobs.enqueue(batch)
    assert await storage.jobs.get([request.id for request in batch]) == {}
    assert await counters(storage) == {"enqueued": 1}


async def test_a_parent_later_in_the_same_call_does_not_exist_yet(storage: Storage) -> None:
    parent = new_job()
    with pytest.raises(NotFound):
        await storage.jobs.enqueue([new_job(after=(After(parent.id),)), parent])
    assert await storage.jobs.get([parent.id]) == {}


@pytest.mark.parametrize("status", [JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED])
@pytest.mark.parametrize("on_failure", ["cancel", "continue", "hold"])
async def test_the_end_of_a_parent_is_news_for_each_child(
    storage: Storage, lease: PodLease, status: JobStatus, on_failure: str
) -> None:
    parent, first = await parent_and_child(storage, on_failure)
    second = await enqueue_one(storage, queue="other", after=(After(parent),))
    await end(storage, lease, parent, status)
    found = {each.child_id: each for each in await news(storage)}
    assert set(found) == {first, second}
    assert {each.parent_id for each in found.values()} == {parent}
    assert {each.parent_status for each in found.values()} == {status}
    assert (found[first].on_failure, found[second].on_failure) == (on_failure, "cancel")
    assert (found[first].queue, found[second].queue) == ("default", "other")
    assert (await get_job(storage, first)).status is JobStatus.BLOCKED


@pytest.mark.parametrize("transition", [failed(DAY), snoozed(DAY)])
async def test_an_attempt_that_is_not_the_end_is_no_news(
    storage: Storage, lease: PodLease, transition: object
) -> None:
    await parent_and_child(storage)
    await run_one(storage, lease, transition)  # type: ignore[arg-type]
    assert await news(storage) == []


@pytest.mark.parametrize("status", [JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED])
async def test_a_parent_that_has_already_ended_is_news_at_once(
    storage: Storage, lease: PodLease, status: JobStatus
) -> None:
    parent = await enqueue_one(storage)
    await end(storage, lease, parent, status)
    child = await enqueue_one(storage, after=(After(parent),))
    assert (await get_job(storage, child)).status is JobStatus.BLOCKED
    [each] = await news(storage)
    assert (each.child_id, each.parent_id, each.parent_status) == (child, parent, status)


async def test_a_child_is_due_when_its_last_edge_settles(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    parents = [await enqueue_one(storage) for _ in range(2)]
    child = await enqueue_one(storage, after=tuple(After(p) for p in parents))
    await run_one(storage, lease, done())
    assert await deliver_all(storage, "settle") == 1
    job = await get_job(storage, child)
    assert (job.status, job.waits_for) == (JobStatus.BLOCKED, (parents[1],))
    clock.advance(1)
    await run_one(storage, lease, done())
    assert await deliver_all(storage, "settle") == 1
    job = await get_job(storage, child)
    assert (job.status, job.cause) == (JobStatus.PENDING, Cause.PARENTS_SETTLED)
    assert (job.waits_for, job.due_at) == ((), clock.now())
    assert (await claim_one(storage, lease)).claim.job_id == child
    assert (await counters(storage))["parents_settled"] == 1


async def test_both_edges_may_settle_in_one_call(storage: Storage, lease: PodLease) -> None:
    parents = [await enqueue_one(storage) for _ in range(2)]
    child = await enqueue_one(storage, after=tuple(After(p) for p in parents))
    for _ in parents:
        await run_one(storage, lease, done())
    assert await deliver_all(storage, "settle") == 2
    assert (await get_job(storage, child)).status is JobStatus.PENDING
    assert (await counters(storage))["parents_settled"] == 1


async def test_a_settled_child_waits_for_its_own_run_at(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    run_at = clock.now() + 10 * SECOND
    _, child = await parent_and_child(storage, run_at=run_at)
    await run_one(storage, lease, done())
    await deliver_all(storage, "settle")
    job = await get_job(storage, child)
    assert (job.status, job.due_at) == (JobStatus.PENDING, run_at)
    clock.advance(10 * SECOND - MICROSECOND)
    assert await claim(storage, lease) == []
    clock.advance(MICROSECOND)
    assert len(await claim(storage, lease)) == 1


@pytest.mark.parametrize("action", ["settle", "cancel", "hold"])
async def test_a_delivery_is_applied_once(storage: Storage, lease: PodLease, action: str) -> None:
    _, child = await parent_and_child(storage)
    await run_one(storage, lease, dead())
    [each] = await news(storage)
    deliveries = [Delivery(each, action)] * 2
    assert await storage.jobs.deliver(deliveries) == 1
    before, counted = await get_job(storage, child), await counters(storage)
    assert await storage.jobs.deliver(deliveries) == 0
    assert await get_job(storage, child) == before
    assert await counters(storage) == counted
    assert await news(storage) == []


async def test_a_late_repeat_does_not_disturb_a_child_that_runs(
    storage: Storage, lease: PodLease
) -> None:
    await parent_and_child(storage)
    await run_one(storage, lease, done())
    [each] = await news(storage)
    await storage.jobs.deliver([Delivery(each, "settle")])
    claimed = await claim_one(storage, lease)
    assert await storage.jobs.deliver([Delivery(each, "cancel")]) == 0
    assert await finish(storage, claimed, done())


async def test_a_cancelled_child_has_ended_itself(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    _, child = await parent_and_child(storage)
    grandchild = await enqueue_one(storage, after=(After(child, "continue"),))
    await run_one(storage, lease, dead())
    clock.advance(1)
    assert await deliver_all(storage, "cancel") == 1
    job = await get_job(storage, child)
    assert (job.status, job.cause) == (JobStatus.CANCELLED, Cause.PARENT_FAILED)
    assert job.finished_at == clock.now()
    assert (await counters(storage))["parent_failed"] == 1
    [each] = await news(storage)
    assert (each.child_id, each.parent_id) == (grandchild, child)
    assert (each.parent_status, each.on_failure) == (JobStatus.CANCELLED, "continue")


async def test_a_failure_reaches_ten_levels_down(storage: Storage, lease: PodLease) -> None:
    chain = [new_job()]
    for _ in range(10):
        chain.append(new_job(after=(After(chain[-1].id),)))
    await storage.jobs.enqueue(chain)
    await run_one(storage, lease, dead())
    for level in chain[1:]:
        [each] = await news(storage)
        assert each.child_id == level.id
        assert await storage.jobs.deliver([Delivery(each, "cancel")]) == 1
    assert await news(storage) == []
    found = await storage.jobs.get([request.id for request in chain])
    causes = [found[request.id].cause for request in chain[1:]]
    assert causes == [Cause.PARENT_FAILED] * 10


async def test_an_edge_on_hold_keeps_its_child_blocked_for_good(
    storage: Storage, lease: PodLease
) -> None:
    parents = [await enqueue_one(storage) for _ in range(2)]
    child = await enqueue_one(storage, after=tuple(After(p, "hold") for p in parents))
    await run_one(storage, lease, dead())
    assert await deliver_all(storage, "hold") == 1
    await run_one(storage, lease, done())
    assert await deliver_all(storage, "settle") == 1
    assert (await get_job(storage, child)).status is JobStatus.BLOCKED
    assert await claim(storage, lease) == []
    assert await news(storage) == []
    assert (await storage.jobs.cancel(only(child))).changed == (child,)


async def test_a_cancel_after_a_settled_edge_still_ends_the_child(
    storage: Storage, lease: PodLease
) -> None:
    for _ in range(2):
        await enqueue_one(storage)
    parents = [job.id for job in (await storage.jobs.list(JobFilter())).jobs]
    child = await enqueue_one(storage, after=tuple(After(p) for p in parents))
    await run_one(storage, lease, done())
    await deliver_all(storage, "settle")
    await run_one(storage, lease, dead())
    await deliver_all(storage, "cancel")
    assert (await get_job(storage, child)).status is JobStatus.CANCELLED


async def test_the_oldest_news_come_first_and_only_so_many(
    storage: Storage, lease: PodLease
) -> None:
    pairs = [await parent_and_child(storage) for _ in range(5)]
    for _ in pairs:
        await run_one(storage, lease, done())
    for limit in (1, 3, 5, 50):
        found = await storage.jobs.handovers(limit)
        assert [each.child_id for each in found] == [child for _, child in pairs[:limit]]


async def test_children_of_a_deleted_job_are_told_that_it_was_cancelled(
    storage: Storage, lease: PodLease
) -> None:
    parent, child = await parent_and_child(storage)
    await storage.jobs.delete(only(parent))
    [each] = await news(storage)
    assert (each.child_id, each.parent_id, each.parent_status) == (
        child,
        parent,
        JobStatus.CANCELLED,
    )
    assert await storage.jobs.deliver([Delivery(each, "cancel")]) == 1


@pytest.mark.parametrize("status", [JobStatus.DONE, JobStatus.DEAD])
async def test_a_parent_deleted_after_its_end_is_remembered_as_it_ended(
    storage: Storage, lease: PodLease, status: JobStatus
) -> None:
    parent, child = await parent_and_child(storage)
    await end(storage, lease, parent, status)
    await storage.jobs.delete(only(parent))
    [each] = await news(storage)
    assert (each.child_id, each.parent_status) == (child, status)
    assert await storage.jobs.deliver([Delivery(each, "settle")]) == 1
    assert (await get_job(storage, child)).status is JobStatus.PENDING


async def test_news_for_a_deleted_child_are_void(storage: Storage, lease: PodLease) -> None:
    _, child = await parent_and_child(storage)
    await run_one(storage, lease, done())
    found = await news(storage)
    await storage.jobs.delete(only(child))
    await storage.jobs.deliver([Delivery(each, "settle") for each in found])
    assert await storage.jobs.get([child]) == {}
    assert await news(storage) == []


async def test_news_for_a_cancelled_child_do_not_bring_it_back(
    storage: Storage, lease: PodLease
) -> None:
    _, child = await parent_and_child(storage)
    await run_one(storage, lease, done())
    await storage.jobs.cancel(only(child))
    before = await get_job(storage, child)
    await deliver_all(storage, "settle")
    after = await get_job(storage, child)
    assert (after.status, after.cause, after.finished_at) == (
        before.status,
        before.cause,
        before.finished_at,
    )
    assert await news(storage) == []


async def test_a_requeued_parent_un_settles_nothing(storage: Storage, lease: PodLease) -> None:
    parent, child = await parent_and_child(storage, "continue")
    await end(storage, lease, parent, JobStatus.DEAD)
    await deliver_all(storage, "settle")
    await storage.jobs.requeue(only(parent))
    assert (await get_job(storage, child)).status is JobStatus.PENDING
    order = [(await claim_one(storage, lease)) for _ in range(2)]
    assert {each.claim.job_id for each in order} == {parent, child}
    for claimed in order:
        assert await finish(storage, claimed, done())
    assert await news(storage) == []


async def test_a_repeated_enqueue_makes_no_second_edge(storage: Storage, lease: PodLease) -> None:
    parent = await enqueue_one(storage)
    request = new_job(after=(After(parent),))
    for _ in range(2):
        await storage.jobs.enqueue([request])
    await run_one(storage, lease, done())
    assert len(await news(storage)) == 1
    await storage.jobs.enqueue([request])
    assert len(await news(storage)) == 1


async def test_a_refused_end_of_the_parent_is_no_news(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    parent, child = await parent_and_child(storage)
    claimed = await claim_one(storage, lease)
    assert await finish(storage, claimed, failed())
    late = claimed
    current = await claim_one(storage, lease)
    assert await finish(storage, late, done())
    assert await news(storage) == []
    assert await finish(storage, current, done())
    [each] = await news(storage)
    assert (each.parent_id, each.child_id) == (parent, child)


async def test_parents_of_another_queue_are_waited_for(storage: Storage) -> None:
    lease = await register(storage, queues=["a", "b"])
    parent = await enqueue_one(storage, queue="a")
    child = await enqueue_one(storage, queue="b", after=(After(parent),))
    await run_one(storage, lease, done(), queue="a")
    await deliver_all(storage, "settle")
    assert (await claim_one(storage, lease, queue="b")).claim.job_id == child


async def test_parents_are_known_as_long_as_the_child(storage: Storage, lease: PodLease) -> None:
    parents = sorted([await enqueue_one(storage) for _ in range(3)])
    child = await enqueue_one(storage, after=tuple(After(each) for each in reversed(parents)))
    alone = await enqueue_one(storage)
    wanted = [child, alone, new_job_id()]
    assert await storage.jobs.parents(wanted) == {child: tuple(parents)}
    for _ in parents:
        await run_one(storage, lease, done())
    await deliver_all(storage, "settle")
    assert await storage.jobs.parents(wanted) == {child: tuple(parents)}
    await storage.jobs.delete(only(parents[0]))
    assert await storage.jobs.parents(wanted) == {child: tuple(parents)}
    await storage.jobs.delete(only(child))
    assert await storage.jobs.parents(wanted) == {}


async def test_parents_of_many_jobs_are_read_at_once(storage: Storage) -> None:
    parent = await enqueue_one(storage)
    children = [new_job(after=(After(parent),), queue=f"q{n % 3}") for n in range(250)]
    await storage.jobs.enqueue(children)
    found = await storage.jobs.parents([child.id for child in children])
    assert found == {child.id: (parent,) for child in children}
