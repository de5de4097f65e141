"""JobStore.exchange: finalize and claim in one step."""

import pytest
from msgspec import structs

from forge_jobs.clock import ManualClock
from forge_jobs.model.jobs import JobStatus, Unique
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Cooldown, Demand, Finalization
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    KIND,
    LEASE,
    QUEUE,
    SECOND,
    claim_one,
    counters,
    done,
    enqueue_one,
    failed,
    get_job,
    new_job,
    register,
    revive,
    snoozed,
)

pytestmark = pytest.mark.anyio


def demand(limit: int, *worker_ids: str) -> Demand:
    return Demand(worker_ids=worker_ids, limit=limit, kinds=frozenset({KIND}))


async def test_it_settles_and_claims(storage: Storage, lease: PodLease) -> None:
    await storage.jobs.enqueue([new_job(), new_job(), new_job()])
    first = await claim_one(storage, lease)
    answer = await storage.jobs.exchange(
        QUEUE, [Finalization(first.claim, done("1"))], demand(2, "w1"), lease
    )
    assert answer.settled == (True,)
    assert [c.attempt for c in answer.claimed] == [1, 1]
    assert (await get_job(storage, first.claim.job_id)).result == "1"
    workers = [(await get_job(storage, c.claim.job_id)).worker_id for c in answer.claimed]
    assert workers == ["w1", ""]
    assert await counters(storage) == {"enqueued": 3, "claimed": 3, "succeeded": 1}


async def test_what_it_frees_may_be_claimed_by_the_same_call(
    storage: Storage, lease: PodLease
) -> None:
    await enqueue_one(storage)
    first = await claim_one(storage, lease)
    answer = await storage.jobs.exchange(
        QUEUE, [Finalization(first.claim, failed())], demand(1, "w"), lease
    )
    again = structs.replace(first.claim, token=first.claim.token + 1)
    assert [c.claim for c in answer.claimed] == [again]


async def test_of_two_claims_of_one_job_the_newer_ends_it_alone(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await enqueue_one(storage)
    older = await claim_one(storage, lease)
    clock.advance(LEASE)
    assert await revive(storage, older)
    lease = await register(storage)
    newer = await claim_one(storage, lease)
    ends = [Finalization(newer.claim, done("2")), Finalization(older.claim, done("1"))]
    answer = await storage.jobs.exchange(QUEUE, ends, demand(1, "w"), lease)
    assert answer.settled == (True, False)
    assert (await get_job(storage, newer.claim.job_id)).result == "2"


async def test_limit_zero_asks_for_no_claim(storage: Storage, lease: PodLease) -> None:
    await storage.jobs.enqueue([new_job(), new_job()])
    first = await claim_one(storage, lease)
    answer = await storage.jobs.exchange(
        QUEUE, [Finalization(first.claim, done())], demand(0), lease
    )
    assert (answer.settled, answer.claimed) == ((True,), ())


async def test_nothing_to_settle_is_a_plain_claim(storage: Storage, lease: PodLease) -> None:
    job_id = await enqueue_one(storage)
    answer = await storage.jobs.exchange(QUEUE, [], demand(1, "w"), lease)
    assert answer.settled == ()
    assert [c.claim.job_id for c in answer.claimed] == [job_id]


async def test_a_lease_that_ran_out_settles_but_claims_nothing(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.jobs.enqueue([new_job(), new_job()])
    first = await claim_one(storage, lease)
    clock.advance(LEASE)
    answer = await storage.jobs.exchange(
        QUEUE, [Finalization(first.claim, done())], demand(1, "w"), lease
    )
    assert (answer.settled, answer.claimed) == ((True,), ())


async def test_a_cool_down_of_the_same_call_stops_its_claim(
    storage: Storage, lease: PodLease
) -> None:
    await storage.jobs.enqueue([new_job(), new_job()])
    first = await claim_one(storage, lease)
    throttled = snoozed(cooldown=Cooldown(60 * SECOND, 1))
    answer = await storage.jobs.exchange(
        QUEUE, [Finalization(first.claim, throttled)], demand(5, "w"), lease
    )
    assert (answer.settled, answer.claimed) == ((True,), ())


async def test_a_refused_end_changes_nothing_and_does_not_hinder_the_claim(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await enqueue_one(storage)
    stale = await claim_one(storage, lease)
    clock.advance(LEASE)
    assert await revive(storage, stale)
    lease = await register(storage)
    late = Finalization(stale.claim, done(cooldown=Cooldown(60 * SECOND, 1)))
    answer = await storage.jobs.exchange(QUEUE, [late], demand(1, "w"), lease)
    assert answer.settled == (False,)
    assert [c.attempt for c in answer.claimed] == [2]


async def test_a_repeat_settles_once_and_the_claims_of_the_lost_reply_come_up(
    storage: Storage, lease: PodLease
) -> None:
    await storage.jobs.enqueue([new_job(), new_job()])
    first = await claim_one(storage, lease)
    items = [Finalization(first.claim, done())]
    lost = await storage.jobs.exchange(QUEUE, items, demand(1, "w"), lease)
    again = await storage.jobs.exchange(QUEUE, items, demand(1, "w"), lease)
    assert (again.settled, again.claimed) == ((True,), ())
    beat = await storage.jobs.heartbeat(lease, [], LEASE)
    assert beat.unknown == tuple(c.claim for c in lost.claimed)
    assert await counters(storage) == {"enqueued": 2, "claimed": 2, "succeeded": 1}


async def test_it_says_when_the_next_job_falls_due(storage: Storage, lease: PodLease) -> None:
    await enqueue_one(storage, delay=30 * SECOND)
    await enqueue_one(storage, delay=20 * SECOND, priority=5)
    answer = await storage.jobs.exchange(QUEUE, [], demand(1, "w"), lease)
    assert (answer.claimed, answer.next_due_in) == ((), 20 * SECOND)


async def test_it_counts_the_retry_it_has_just_written(storage: Storage, lease: PodLease) -> None:
    await enqueue_one(storage)
    first = await claim_one(storage, lease)
    answer = await storage.jobs.exchange(
        QUEUE, [Finalization(first.claim, failed(7 * SECOND))], demand(1, "w"), lease
    )
    assert answer.next_due_in == 7 * SECOND


async def test_nothing_scheduled_has_no_next_due_time(storage: Storage, lease: PodLease) -> None:
    answer = await storage.jobs.exchange(QUEUE, [], demand(1, "w"), lease)
    assert (answer.claimed, answer.next_due_in) == ((), None)


async def test_items_of_other_queues_are_settled_too(storage: Storage) -> None:
    lease = await register(storage, queues=["a", "b"])
    await enqueue_one(storage, queue="b")
    theirs = await claim_one(storage, lease, queue="b")
    answer = await storage.jobs.exchange(
        "a", [Finalization(theirs.claim, done())], demand(1, "w"), lease
    )
    assert answer.settled == (True,)
    assert (await get_job(storage, theirs.claim.job_id)).status is JobStatus.DONE


async def test_a_key_freed_by_the_call_is_free_for_the_next_one(
    storage: Storage, lease: PodLease
) -> None:
    await enqueue_one(storage, unique=Unique("k"))
    first = await claim_one(storage, lease)
    await storage.jobs.exchange(QUEUE, [Finalization(first.claim, done())], demand(0), lease)
    await enqueue_one(storage, unique=Unique("k"))
