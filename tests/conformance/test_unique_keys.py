"""Unique keys: at most one active job of a queue per key, from enqueue to requeue."""

from collections.abc import Awaitable, Callable

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Conflict
from forge_jobs.model.filters import JobFilter, Refusal
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, Cause, JobStatus, Unique
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Transition
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    LEASE,
    QUEUE,
    claim_for,
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
    revive,
    run_one,
    snoozed,
)

pytestmark = pytest.mark.anyio

KEY = Unique("k")
Situation = Callable[[Storage, PodLease, ManualClock], Awaitable[JobId]]


async def pending(storage: Storage, lease: PodLease, clock: ManualClock) -> JobId:
    return await enqueue_one(storage, unique=KEY)


async def scheduled(storage: Storage, lease: PodLease, clock: ManualClock) -> JobId:
    return await enqueue_one(storage, unique=KEY, delay=DAY)


async def blocked(storage: Storage, lease: PodLease, clock: ManualClock) -> JobId:
    parent = await enqueue_one(storage, delay=DAY)
    return await enqueue_one(storage, unique=KEY, after=(After(parent),))


async def in_progress(storage: Storage, lease: PodLease, clock: ManualClock) -> JobId:
    await enqueue_one(storage, unique=KEY)
    return (await claim_one(storage, lease)).claim.job_id


async def waiting_for_its_retry(storage: Storage, lease: PodLease, clock: ManualClock) -> JobId:
    await enqueue_one(storage, unique=KEY)
    return await run_one(storage, lease, failed(DAY))


async def snoozing(storage: Storage, lease: PodLease, clock: ManualClock) -> JobId:
    await enqueue_one(storage, unique=KEY)
    return await run_one(storage, lease, snoozed(DAY))


async def revived(storage: Storage, lease: PodLease, clock: ManualClock) -> JobId:
    await enqueue_one(storage, unique=KEY)
    claimed = await claim_one(storage, lease)
    clock.advance(LEASE)
    assert await revive(storage, claimed)
    return claimed.claim.job_id


async def on_hold(storage: Storage, lease: PodLease, clock: ManualClock) -> JobId:
    job_id = await enqueue_one(storage, unique=KEY, kind="nobody.knows")
    assert await claim_for(storage, QUEUE, ["w"], 1, frozenset({"tests.noop"}), lease) == []
    assert (await get_job(storage, job_id)).hold is not None
    return job_id


async def asked_to_cancel(storage: Storage, lease: PodLease, clock: ManualClock) -> JobId:
    job_id = await in_progress(storage, lease, clock)
    await storage.jobs.cancel(only(job_id))
    return job_id


async def requeued(storage: Storage, lease: PodLease, clock: ManualClock) -> JobId:
    await enqueue_one(storage, unique=KEY)
    job_id = await run_one(storage, lease, dead())
    assert (await storage.jobs.requeue(only(job_id))).changed == (job_id,)
    return job_id


@pytest.mark.parametrize(
    "situation",
    [
        pending,
        scheduled,
        blocked,
        in_progress,
        waiting_for_its_retry,
        snoozing,
        revived,
        on_hold,
        asked_to_cancel,
        requeued,
    ],
)
async def test_an_active_job_holds_its_key(
    storage: Storage, lease: PodLease, clock: ManualClock, situation: Situation
) -> None:
    holder = await situation(storage, lease, clock)
    before = await get_job(storage, holder)
    [outcome] = await storage.jobs.enqueue([new_job(unique=KEY, payload='{"n":2}')])
    assert (outcome.job_id, outcome.deduplicated) == (holder, True)
    with pytest.raises(Conflict, match="k"):
        await storage.jobs.enqueue([new_job(unique=Unique("k", "error"))])
    assert await get_job(storage, holder) == before
    assert (await counters(storage))["deduplicated"] == 1


async def ends_done(storage: Storage, lease: PodLease, clock: ManualClock) -> JobId:
    return await run_one(storage, lease, done())


async def ends_dead(storage: Storage, lease: PodLease, clock: ManualClock) -> JobId:
    return await run_one(storage, lease, dead())


async def ends_by_transition(storage: Storage, lease: PodLease, clock: ManualClock) -> JobId:
    return await run_one(
        storage, lease, Transition(status=JobStatus.CANCELLED, cause=Cause.CANCELLED)
    )


async def cancelled_waiting(storage: Storage, lease: PodLease, clock: ManualClock) -> JobId:
    [job_id] = (await storage.jobs.cancel(JobFilter(unique_key="k"))).changed
    return job_id


async def cancelled_running(storage: Storage, lease: PodLease, clock: ManualClock) -> JobId:
    claimed = await claim_one(storage, lease)
    await storage.jobs.cancel(only(claimed.claim.job_id))
    assert await finish(storage, claimed, failed())
    return claimed.claim.job_id


async def expired(storage: Storage, lease: PodLease, clock: ManualClock) -> JobId:
    [job] = (await storage.jobs.list(JobFilter(unique_key="k"))).jobs
    clock.advance(DAY)
    assert await storage.jobs.expire(10) == 1
    return job.id


async def crashed_for_good(storage: Storage, lease: PodLease, clock: ManualClock) -> JobId:
    claimed = await claim_one(storage, lease)
    clock.advance(LEASE)
    assert await revive(storage, claimed, dead())
    return claimed.claim.job_id


async def deleted(storage: Storage, lease: PodLease, clock: ManualClock) -> JobId:
    [job_id] = (await storage.jobs.delete(JobFilter(unique_key="k"))).changed
    return job_id


@pytest.mark.parametrize(
    "ending",
    [
        ends_done,
        ends_dead,
        ends_by_transition,
        cancelled_waiting,
        cancelled_running,
        expired,
        crashed_for_good,
        deleted,
    ],
)
@pytest.mark.parametrize("mode", ["keep", "error"])
async def test_the_end_of_a_job_frees_its_key(
    storage: Storage, lease: PodLease, clock: ManualClock, ending: Situation, mode: str
) -> None:
    first = await enqueue_one(storage, unique=KEY, expires_at=clock.now() + DAY)
    assert await ending(storage, lease, clock) == first
    second = await enqueue_one(storage, unique=Unique("k", mode))  # type: ignore[arg-type]
    assert second != first


async def test_a_key_counts_in_its_own_queue_only(storage: Storage) -> None:
    first = await enqueue_one(storage, unique=KEY)
    second = await enqueue_one(storage, unique=KEY, queue="q2")
    assert first != second


async def test_of_two_requests_in_one_call_the_earlier_wins(storage: Storage) -> None:
    batch = [new_job(unique=KEY), new_job(), new_job(unique=KEY), new_job(unique=Unique("k2"))]
    outcomes = await storage.jobs.enqueue(batch)
    assert [o.deduplicated for o in outcomes] == [False, False, True, False]
    assert outcomes[2].job_id == batch[0].id
    assert await storage.jobs.get([batch[2].id]) == {}
    assert await counters(storage) == {"enqueued": 3, "deduplicated": 1}


@pytest.mark.parametrize("earlier", ["stored", "same call"])
async def test_a_held_key_in_mode_error_stores_nothing_of_the_call(
    storage: Storage, earlier: str
) -> None:
    batch = [new_job(), new_job(unique=Unique("the key", "error")), new_job()]
    if earlier == "stored":
        await enqueue_one(storage, unique=Unique("the key"))
    else:
        batch.insert(0, new_job(unique=Unique("the key")))
    before = await counters(storage)
    with pytest.raises(Conflict, match="the key"):
        await storage.jobs.enqueue(batch)
    assert await storage.jobs.get([request.id for request in batch]) == {}
    assert await counters(storage) == before


async def test_a_dropped_request_creates_no_edges(storage: Storage, lease: PodLease) -> None:
    await enqueue_one(storage, unique=KEY, delay=DAY)
    parent = await enqueue_one(storage)
    await storage.jobs.enqueue([new_job(unique=KEY, after=(After(parent),))])
    await run_one(storage, lease, done())
    assert await storage.jobs.handovers(10) == []


async def test_requeue_is_refused_while_another_active_job_holds_the_key(
    storage: Storage, lease: PodLease
) -> None:
    first = await enqueue_one(storage, unique=KEY)
    await run_one(storage, lease, dead())
    second = await enqueue_one(storage, unique=KEY)
    outcome = await storage.jobs.requeue(only(first))
    assert (outcome.changed, outcome.refused) == ((), {first: Refusal.KEY_TAKEN})
    assert (await get_job(storage, first)).status is JobStatus.DEAD
    await run_one(storage, lease, done())
    assert (await get_job(storage, second)).status is JobStatus.DONE
    assert (await storage.jobs.requeue(only(first))).changed == (first,)


async def test_of_two_dead_jobs_with_one_key_one_is_requeued(
    storage: Storage, lease: PodLease
) -> None:
    pair = []
    for _ in range(2):
        await enqueue_one(storage, unique=KEY)
        pair.append(await run_one(storage, lease, dead()))
    outcome = await storage.jobs.requeue(JobFilter(statuses=(JobStatus.DEAD,)))
    assert len(outcome.changed) == 1
    assert set(outcome.refused.values()) == {Refusal.KEY_TAKEN}
    assert set(outcome.changed) | set(outcome.refused) == set(pair)
    assert outcome.cursor is None
    assert (await counters(storage))["requeued"] == 1


async def test_a_failed_job_is_requeued_although_it_holds_the_key_itself(
    storage: Storage, lease: PodLease
) -> None:
    job_id = await enqueue_one(storage, unique=KEY)
    await run_one(storage, lease, failed(DAY))
    assert (await storage.jobs.requeue(only(job_id))).changed == (job_id,)
