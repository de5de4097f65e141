"""Retention: which finished jobs and results ``JobStore.cleanup`` removes, and when."""

from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import QueueChange, Retention
from forge_jobs.model.retention import Kept
from forge_jobs.model.transitions import Delivery, Transition
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    MICROSECOND,
    QUEUE,
    SECOND,
    claim_one,
    cleaned_up,
    dead,
    done,
    enqueue_one,
    failed,
    finish,
    get_job,
    only,
    register,
    run_one,
)

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
FOR_EVER = timedelta(days=100_000)


async def keep(storage: Storage, retention: Retention, queue: str = QUEUE) -> None:
    await storage.config.set_queue(queue, QueueChange(retention=retention))


async def finished(
    storage: Storage, transition: Transition | None = None, queue: str = QUEUE
) -> JobId:
    """Return a new job that has just ended."""
    lease = await register(storage, queues=(queue,))
    await enqueue_one(storage, queue=queue)
    return await run_one(storage, lease, transition or done(), queue=queue)


async def stored(storage: Storage) -> set[JobId]:
    return {job.id for job in (await storage.jobs.list(JobFilter(), limit=1000)).jobs}


async def clean_up(storage: Storage) -> int:
    return await cleaned_up(storage, batch=100)


# -- age ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["done", "dead", "cancelled"])
async def test_a_finished_job_goes_at_the_age_of_its_status(
    storage: Storage, clock: ManualClock, status: str
) -> None:
    ages = dict.fromkeys(("done", "dead", "cancelled"), FOR_EVER) | {status: DAY}
    await keep(
        storage,
        Retention(done=ages["done"], dead=ages["dead"], cancelled=ages["cancelled"]),
    )
    jobs = {
        "done": await finished(storage),
        "dead": await finished(storage, dead()),
        "cancelled": await enqueue_one(storage),
    }
    await storage.jobs.cancel(only(jobs["cancelled"]))
    clock.advance(DAY - MICROSECOND)
    assert await clean_up(storage) == 0
    clock.advance(MICROSECOND)
    assert await clean_up(storage) == 1
    assert await stored(storage) == set(jobs.values()) - {jobs[status]}


async def test_what_is_kept_for_ever_is_no_obstacle_to_the_rest_of_the_pass(
    storage: Storage, clock: ManualClock
) -> None:
    for_ever = Retention(done=timedelta.max, max_done=10**12)
    await keep(storage, for_ever)
    await keep(storage, Retention(done=DAY), "other")
    kept = await finished(storage)
    await finished(storage, queue="other")
    clock.advance(2 * DAY)
    history = Kept(
        events=timedelta.max, hours=timedelta.max, errors=timedelta.max, series=timedelta.max
    )
    await cleaned_up(storage, kept=history)
    assert await stored(storage) == {kept}
    [state] = [each for each in await storage.config.queues() if each.name == QUEUE]
    assert state.settings.retention == for_ever
    assert not state.unreadable


async def test_age_counts_from_the_end_not_from_the_enqueue(
    storage: Storage, clock: ManualClock
) -> None:
    await keep(storage, Retention(done=DAY))
    job_id = await enqueue_one(storage)
    clock.advance(2 * DAY)
    lease = await register(storage)
    await run_one(storage, lease, done())
    assert await clean_up(storage) == 0
    clock.advance(DAY)
    await clean_up(storage)
    assert job_id not in await stored(storage)


async def test_unfinished_jobs_are_never_removed(
    storage: Storage, clock: ManualClock, lease: PodLease
) -> None:
    nothing = timedelta(0)
    await keep(
        storage,
        Retention(
            done=nothing, dead=nothing, cancelled=nothing, max_done=0, max_dead=0, max_cancelled=0
        ),
    )
    await enqueue_one(storage)
    await run_one(storage, lease, failed(timedelta(0)))
    await enqueue_one(storage)
    await claim_one(storage, lease)
    parent = await enqueue_one(storage, delay=DAY)
    await enqueue_one(storage, delay=2 * DAY)
    before = await stored(storage)
    assert parent in before
    clock.advance(400 * DAY)
    await clean_up(storage)
    assert await stored(storage) == before


async def test_a_job_that_ended_less_than_a_minute_ago_stays_as_a_row(
    storage: Storage, clock: ManualClock
) -> None:
    await keep(storage, Retention(done=timedelta(0), max_done=0))
    job_id = await finished(storage)
    clock.advance(MINUTE - MICROSECOND)
    assert await clean_up(storage) == 0
    assert await stored(storage) == {job_id}
    clock.advance(MICROSECOND)
    assert await clean_up(storage) == 1
    assert await stored(storage) == set()


async def test_retention_is_per_queue(storage: Storage, clock: ManualClock) -> None:
    await keep(storage, Retention(done=DAY))
    await keep(storage, Retention(done=FOR_EVER), queue="b")
    await finished(storage)
    kept = await finished(storage, queue="b")
    clock.advance(DAY)
    assert await clean_up(storage) == 1
    assert await stored(storage) == {kept}


async def test_a_requeued_job_is_not_removed_by_the_age_of_its_former_end(
    storage: Storage, clock: ManualClock
) -> None:
    await keep(storage, Retention(dead=DAY))
    job_id = await finished(storage, dead())
    clock.advance(DAY)
    await storage.jobs.requeue(only(job_id))
    await clean_up(storage)
    assert await stored(storage) == {job_id}


# -- count -------------------------------------------------------------------------------------


async def test_beyond_the_count_the_oldest_go(storage: Storage, clock: ManualClock) -> None:
    await keep(storage, Retention(done=FOR_EVER, max_done=2))
    jobs = []
    for _ in range(5):
        jobs.append(await finished(storage))
        clock.advance(SECOND)
    clock.advance(MINUTE)
    assert await clean_up(storage) == 3
    assert await stored(storage) == set(jobs[3:])


async def test_the_count_is_per_status_and_queue(storage: Storage, clock: ManualClock) -> None:
    only_one = Retention(done=FOR_EVER, dead=FOR_EVER, max_done=1, max_dead=1)
    await keep(storage, only_one)
    await keep(storage, only_one, queue="b")
    kept = {
        await finished(storage),
        await finished(storage, dead()),
        await finished(storage, queue="b"),
    }
    clock.advance(MINUTE)
    assert await clean_up(storage) == 0
    assert await stored(storage) == kept


async def test_a_count_of_zero_keeps_none(storage: Storage, clock: ManualClock) -> None:
    await keep(storage, Retention(done=FOR_EVER, max_done=0))
    for _ in range(3):
        await finished(storage)
    clock.advance(MINUTE)
    assert await clean_up(storage) == 3


async def test_of_jobs_that_ended_together_exactly_the_count_stays(
    storage: Storage, clock: ManualClock
) -> None:
    await keep(storage, Retention(done=FOR_EVER, max_done=2))
    jobs = [await finished(storage) for _ in range(5)]
    clock.advance(MINUTE)
    assert await clean_up(storage) == 3
    assert await stored(storage) == set(jobs[3:])


async def test_a_count_does_not_remove_jobs_of_the_last_minute(
    storage: Storage, clock: ManualClock
) -> None:
    await keep(storage, Retention(done=FOR_EVER, max_done=1))
    old = await finished(storage)
    clock.advance(MINUTE - SECOND)
    young = [await finished(storage) for _ in range(3)]
    clock.advance(SECOND)
    assert await clean_up(storage) == 1
    assert await stored(storage) == set(young)
    assert old not in await stored(storage)


# -- bounds ------------------------------------------------------------------------------------


async def test_one_call_removes_at_most_its_limit_the_oldest_first(
    storage: Storage, clock: ManualClock
) -> None:
    retention = Retention(done=DAY, dead=DAY)
    await keep(storage, retention)
    await keep(storage, retention, queue="b")
    jobs = []
    for number in range(8):
        queue = "b" if number % 2 else QUEUE
        is_dead = number % 4 > 1
        how = dead() if is_dead else done()
        jobs.append(((queue, is_dead), await finished(storage, how, queue=queue)))
        clock.advance(SECOND)
    clock.advance(2 * DAY)
    order = [job_id for _, job_id in sorted(jobs, key=lambda each: each[0])]
    rest: object | None = None
    for removed in (3, 6, 8):
        cleaned = await storage.jobs.cleanup(3, rest)
        assert cleaned.removed == (2 if removed == 8 else 3)
        assert await stored(storage) == set(order[removed:])
        rest = cleaned.rest
    assert await cleaned_up(storage) == 0


async def test_a_pass_stops_where_the_rule_was_changed_meanwhile(
    storage: Storage, clock: ManualClock
) -> None:
    await keep(storage, Retention(done=DAY))
    jobs = [await finished(storage) for _ in range(4)]
    clock.advance(DAY)
    first = await storage.jobs.cleanup(2)
    assert (first.removed, first.rest is None) == (2, False)
    await keep(storage, Retention(done=FOR_EVER))
    await storage.jobs.cleanup(2, first.rest)
    assert await stored(storage) == set(jobs[2:])


# -- results -----------------------------------------------------------------------------------


async def test_a_result_goes_at_its_own_time_and_the_job_stays(
    storage: Storage, clock: ManualClock, lease: PodLease
) -> None:
    mortal = await enqueue_one(storage, result_ttl=timedelta(hours=1))
    await run_one(storage, lease, done("[1]"))
    lasting = await enqueue_one(storage)
    await run_one(storage, lease, done("[2]"))
    clock.advance(timedelta(hours=1) - MICROSECOND)
    await clean_up(storage)
    assert (await get_job(storage, mortal)).result == "[1]"
    clock.advance(MICROSECOND)
    await clean_up(storage)
    assert (await get_job(storage, mortal)).result is None
    assert (await get_job(storage, lasting)).result == "[2]"


@pytest.mark.parametrize("verb", ["delete", "requeue"])
async def test_what_an_operator_took_away_with_its_result_is_not_cleaned_up_again(
    storage: Storage, clock: ManualClock, lease: PodLease, verb: str
) -> None:
    job_id = await enqueue_one(storage, result_ttl=timedelta(hours=1))
    await run_one(storage, lease, dead(result="[1]"))
    outcome = await getattr(storage.jobs, verb)(only(job_id))
    assert outcome.changed == (job_id,)
    clock.advance(timedelta(hours=2))
    assert await clean_up(storage) == 0


async def test_a_job_that_is_removed_takes_its_result_along(
    storage: Storage, clock: ManualClock
) -> None:
    await keep(storage, Retention(done=MINUTE))
    lease = await register(storage)
    await enqueue_one(storage, result_ttl=timedelta(hours=1))
    await run_one(storage, lease, done("[1]"))
    clock.advance(MINUTE)
    assert await clean_up(storage) == 1
    clock.advance(timedelta(hours=2))
    assert await clean_up(storage) == 0


# -- beside retention -------------------------------------------------------------------------


async def test_a_child_of_a_removed_parent_runs(
    storage: Storage, clock: ManualClock, lease: PodLease
) -> None:
    await keep(storage, Retention(done=timedelta(0)))
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)

    child = await enqueue_one(storage, after=(After(claimed.claim.job_id),))
    assert await finish(storage, claimed, done())
    clock.advance(MINUTE)
    assert await clean_up(storage) == 1
    news = await storage.jobs.handovers(10)
    await storage.jobs.deliver([Delivery(handover, "settle") for handover in news])
    late = await register(storage)
    assert await run_one(storage, late, done()) == child
