"""JobStore.finalize: the writes of a transition, and refusals."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import ERROR_HISTORY, Cause, Claim, ClaimedJob, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import CooldownPolicy
from forge_jobs.model.transitions import Cooldown, Finalization, Transition
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    LEASE,
    QUEUE,
    SECOND,
    claim,
    claim_for,
    claim_one,
    counters,
    dead,
    done,
    enqueue_one,
    error,
    failed,
    finish,
    get_job,
    new_job,
    only,
    rate_limited,
    register,
    revive,
    run_one,
    snoozed,
)

pytestmark = pytest.mark.anyio


async def claimed_one(storage: Storage, lease: PodLease) -> ClaimedJob:
    await enqueue_one(storage)
    return await claim_one(storage, lease)


@pytest.mark.parametrize(
    "transition",
    [
        done('{"n": 1}'),
        dead(),
        Transition(status=JobStatus.DEAD, cause=Cause.REJECTED),
        Transition(status=JobStatus.CANCELLED, cause=Cause.CANCELLED),
        failed(SECOND),
        failed(SECOND, cause=Cause.TIMED_OUT),
        snoozed(SECOND),
        snoozed(SECOND, cooldown=Cooldown(SECOND, 1)),
        rate_limited(SECOND),
        Transition(status=JobStatus.PENDING, cause=Cause.INTERRUPTED, hand_back=True),
        Transition(status=JobStatus.PENDING, cause=Cause.THROTTLED, hand_back=True),
        Transition(status=JobStatus.PENDING, cause=Cause.RELEASED, hand_back=True),
        Transition(status=JobStatus.PENDING, cause=Cause.KEY_MISSING, delay=SECOND, hand_back=True),
        Transition(status=JobStatus.PENDING, cause=Cause.STRUCK, delay=SECOND, hand_back=True),
        Transition(status=JobStatus.CANCELLED, cause=Cause.STRUCK),
        Transition(status=JobStatus.CANCELLED, cause=Cause.DROPPED),
    ],
    ids=lambda transition: f"{transition.cause}-{transition.status}",
)
async def test_a_transition_is_applied_and_counted_by_its_cause(
    storage: Storage, lease: PodLease, clock: ManualClock, transition: Transition
) -> None:
    claimed = await claimed_one(storage, lease)
    clock.advance(2)
    assert await finish(storage, claimed, transition)
    job = await get_job(storage, claimed.claim.job_id)
    assert (job.status, job.cause) == (transition.status, transition.cause)
    assert job.attempt == (0 if transition.hand_back else 1)
    assert (job.snoozes, job.crashes) == (int(transition.count_snooze), 0)
    assert job.rate_limit == transition.rate_limit
    ended = job.status in {JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED}
    assert job.finished_at == (clock.now() if ended else None)
    if not ended:
        assert transition.delay is not None
        assert job.due_at == clock.now() + transition.delay
    assert job.result == transition.result
    assert await counters(storage) == {"enqueued": 1, "claimed": 1, transition.cause.value: 1}


async def test_the_minute_of_a_count_is_that_of_the_stores_clock(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    start = clock.now()
    await storage.jobs.enqueue([new_job(), new_job()])
    clock.advance(60)
    lease = await register(storage)
    await run_one(storage, lease, done())
    clock.advance(59.999999)
    lease = await register(storage)
    await run_one(storage, lease, done())
    found = await storage.jobs.metrics(QUEUE, start, start + DAY)
    assert [(b.minute - start, {str(k): n for k, n in b.counts.items() if n}) for b in found] == [
        (0 * SECOND, {"enqueued": 2}),
        (60 * SECOND, {"claimed": 2, "succeeded": 2}),
    ]


async def test_a_job_that_waits_belongs_to_nobody(storage: Storage, lease: PodLease) -> None:
    claimed = await claimed_one(storage, lease)
    await finish(storage, claimed, failed(SECOND))
    assert await storage.jobs.stale_claims(0 * SECOND, 10) == []
    assert await storage.procs.workers() == []
    [pod] = await storage.procs.pods()
    assert sum(pod.in_progress.values()) == 0


async def test_a_crash_count_grows_by_its_flag(storage: Storage, lease: PodLease) -> None:
    claimed = await claimed_one(storage, lease)
    await finish(storage, claimed, failed(count_crash=True))
    job = await get_job(storage, claimed.claim.job_id)
    assert (job.crashes, job.attempt, job.snoozes) == (1, 1, 0)


async def test_an_error_is_stamped_and_appended(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await enqueue_one(storage)
    for attempt in (1, 2):
        clock.advance(1)
        record = error(f"no. {attempt}", attempt=attempt, traceback="line\n", host_id="h")
        job_id = await run_one(storage, lease, failed(error=record))
    job = await get_job(storage, job_id)
    assert [(e.message, e.attempt) for e in job.errors] == [("no. 1", 1), ("no. 2", 2)]
    first, second = job.errors
    assert (first.type, first.cause, first.traceback, first.host_id) == (
        "ValueError",
        Cause.FAILED,
        "line\n",
        "h",
    )
    assert (first.at, second.at) == (clock.now() - SECOND, clock.now())


async def test_success_keeps_the_errors_of_earlier_attempts(
    storage: Storage, lease: PodLease
) -> None:
    await enqueue_one(storage)
    await run_one(storage, lease, failed())
    job_id = await run_one(storage, lease, done())
    assert [e.message for e in (await get_job(storage, job_id)).errors] == ["boom"]


async def test_the_newest_errors_stay(storage: Storage, lease: PodLease) -> None:
    job_id = await enqueue_one(storage, max_attempts=None)
    for attempt in range(1, ERROR_HISTORY + 3):
        await run_one(storage, lease, failed(error=error(str(attempt), attempt=attempt)))
        kept = (await get_job(storage, job_id)).errors
        assert len(kept) == min(attempt, ERROR_HISTORY)
    assert [e.message for e in kept] == [str(n) for n in range(3, ERROR_HISTORY + 3)]


@pytest.mark.parametrize("newer", [done('"new"'), done(None), failed(), dead()])
async def test_a_result_replaces_an_older_one_also_by_none(
    storage: Storage, lease: PodLease, newer: Transition
) -> None:
    await enqueue_one(storage)
    job_id = await run_one(storage, lease, failed(result='"old"'))
    await run_one(storage, lease, newer)
    assert (await get_job(storage, job_id)).result == newer.result


@pytest.mark.parametrize("length", [1, 4_000, 1_000_000])
async def test_a_result_comes_back_byte_for_byte(
    storage: Storage, lease: PodLease, length: int
) -> None:
    result = '{ "n" : 1.0, "text": "' + "\u00e9\\u00e9 %s {} " + "x" * length + '"}'
    await enqueue_one(storage)
    job_id = await run_one(storage, lease, done(result))
    assert (await get_job(storage, job_id)).result == result


async def test_a_repeat_after_a_lost_reply_is_true_and_changes_nothing(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed = await claimed_one(storage, lease)
    assert await finish(storage, claimed, done("1"))
    before, counted = await get_job(storage, claimed.claim.job_id), await counters(storage)
    clock.advance(1)
    assert await finish(storage, claimed, done("1"))
    assert await finish(storage, claimed, failed(cooldown=Cooldown(DAY, 3)))
    assert await get_job(storage, claimed.claim.job_id) == before
    assert await counters(storage) == counted
    [queue] = await storage.config.queues()
    assert queue.cooldown_level == 0


@pytest.mark.parametrize("since", ["waits", "claimed again", "requeued", "cancelled"])
async def test_a_repeat_is_true_whatever_has_become_of_the_job(
    storage: Storage, lease: PodLease, since: str
) -> None:
    claimed = await claimed_one(storage, lease)
    job_id = claimed.claim.job_id
    end = dead() if since == "requeued" else failed()
    assert await finish(storage, claimed, end)
    if since == "claimed again":
        await claim_one(storage, lease)
    elif since == "requeued":
        await storage.jobs.requeue(only(job_id))
    elif since == "cancelled":
        await storage.jobs.cancel(only(job_id))
    before, counted = await get_job(storage, job_id), await counters(storage)
    assert await finish(storage, claimed, end)
    assert await get_job(storage, job_id) == before
    assert await counters(storage) == counted


@pytest.mark.parametrize("again", [done("2"), dead()], ids=["done", "dead"])
async def test_one_claim_twice_in_one_call_is_applied_once(
    storage: Storage, lease: PodLease, again: Transition
) -> None:
    claimed = await claimed_one(storage, lease)
    twice = [Finalization(claimed.claim, done("1")), Finalization(claimed.claim, again)]
    assert await storage.jobs.finalize(twice) == [True, True]
    job = await get_job(storage, claimed.claim.job_id)
    assert (job.status, job.result, job.errors) == (JobStatus.DONE, "1", ())
    assert await counters(storage) == {"enqueued": 1, "claimed": 1, "succeeded": 1}


async def test_the_late_result_of_a_revived_claim_is_refused(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed = await claimed_one(storage, lease)
    clock.advance(LEASE)
    assert await revive(storage, claimed)
    before, counted = await get_job(storage, claimed.claim.job_id), await counters(storage)
    late = done("1", cooldown=Cooldown(DAY, 5))
    assert not await finish(storage, claimed, late)
    assert await get_job(storage, claimed.claim.job_id) == before
    successor = await claim_one(storage, await register(storage))
    during = await get_job(storage, claimed.claim.job_id)
    assert not await finish(storage, claimed, late)
    assert await get_job(storage, claimed.claim.job_id) == during
    assert await finish(storage, successor, done("2"))
    assert not await finish(storage, claimed, late)
    assert (await get_job(storage, claimed.claim.job_id)).result == "2"
    [queue] = await storage.config.queues()
    assert (queue.cooldown_level, queue.cooldown_ended_for) == (0, None)
    assert await counters(storage) == counted | {"claimed": 2, "succeeded": 1}


async def test_the_same_worker_name_on_a_newer_claim_gives_the_old_one_no_right(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await enqueue_one(storage)
    [old] = await claim_for(storage, QUEUE, ["same"], 1, frozenset({"tests.noop"}), lease)
    clock.advance(LEASE)
    assert await revive(storage, old)
    lease = await register(storage, host_id=lease.host_id)
    [new] = await claim_for(storage, QUEUE, ["same"], 1, frozenset({"tests.noop"}), lease)
    assert not await finish(storage, old, done())
    assert (await get_job(storage, new.claim.job_id)).status is JobStatus.IN_PROGRESS


async def test_a_pod_without_a_lease_may_still_end_its_current_claim(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed = await claimed_one(storage, lease)
    clock.advance(10 * LEASE)
    assert await finish(storage, claimed, done())


@pytest.mark.parametrize("token", [0, 1, 2])
async def test_a_job_that_was_never_claimed_cannot_be_ended(
    storage: Storage, lease: PodLease, token: int
) -> None:
    job_id = await enqueue_one(storage)
    assert not await finish(storage, Claim(QUEUE, job_id, token, lease.host_id), done())
    assert (await get_job(storage, job_id)).status is JobStatus.PENDING
    assert await counters(storage) == {"enqueued": 1}


@pytest.mark.parametrize("off_by", [-1, 1])
async def test_only_the_current_token_counts(
    storage: Storage, lease: PodLease, off_by: int
) -> None:
    claimed = await claimed_one(storage, lease)
    wrong = replace(claimed.claim, token=claimed.claim.token + off_by)
    assert not await finish(storage, wrong, done())
    assert (await get_job(storage, claimed.claim.job_id)).status is JobStatus.IN_PROGRESS


async def test_the_holder_of_a_deleted_job_has_no_claim_of_its_successor(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    request = new_job(queue=QUEUE)
    await storage.jobs.enqueue([request])
    old = await claim_one(storage, lease)
    await finish(storage, old, failed())
    await storage.jobs.delete(only(request.id))
    clock.advance(timedelta(microseconds=1))
    await storage.jobs.enqueue([request])
    new = await claim_one(storage, lease)
    assert (new.claim.job_id, new.claim == old.claim) == (request.id, False)
    for late in (done(), failed()):
        assert not await finish(storage, old, late)
    assert await storage.jobs.release([old.claim]) == [False]
    assert await storage.jobs.record_start([old.claim]) == [False]
    job = await get_job(storage, request.id)
    assert (job.status, job.token) == (JobStatus.IN_PROGRESS, new.claim.token)


async def test_items_of_one_batch_are_independent_and_answered_in_order(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    for number in range(6):
        await enqueue_one(storage, queue=QUEUE, payload=f'{{"n":{number}}}')
    stale, deleted, twice, good, cancelled, last = await claim(storage, lease, limit=6)
    await finish(storage, deleted, done())
    await storage.jobs.delete(only(deleted.claim.job_id))
    await finish(storage, twice, done("2"))
    await storage.jobs.cancel(only(cancelled.claim.job_id))
    clock.advance(LEASE)
    assert await revive(storage, stale)
    unknown = Claim(QUEUE, new_job_id(), 1, lease.host_id)
    elsewhere = replace(last.claim, queue="other")
    order = [stale.claim, good.claim, unknown, deleted.claim, twice.claim, cancelled.claim]
    items = [Finalization(c, failed(SECOND)) for c in [*order, elsewhere, last.claim]]
    assert await storage.jobs.finalize(items) == [
        False,
        True,
        False,
        False,
        True,
        True,
        False,
        True,
    ]
    states = [(await get_job(storage, c.claim.job_id)).status for c in (twice, cancelled, last)]
    assert states == [JobStatus.DONE, JobStatus.CANCELLED, JobStatus.FAILED]
    assert await counters(storage) == {
        "enqueued": 6,
        "claimed": 6,
        "succeeded": 2,
        "crashed": 1,
        "failed": 2,
        "cancelled": 1,
    }


@pytest.mark.parametrize("newer_first", [True, False])
async def test_a_repeat_does_not_see_the_newer_end_in_its_own_call(
    storage: Storage, lease: PodLease, newer_first: bool
) -> None:
    older = await claimed_one(storage, lease)
    assert await finish(storage, older, failed())
    newer = await claim_one(storage, lease)
    items = [Finalization(older.claim, failed()), Finalization(newer.claim, done())]
    order = items[::-1] if newer_first else items
    assert await storage.jobs.finalize(order) == [True, True]
    assert (await get_job(storage, older.claim.job_id)).status is JobStatus.DONE


async def test_one_call_may_end_claims_of_several_queues(storage: Storage) -> None:
    lease = await register(storage, queues=["a", "b"])
    claimed = []
    for queue in ("a", "b", "a"):
        await enqueue_one(storage, queue=queue)
        claimed.append(await claim_one(storage, lease, queue=queue))
    items = [Finalization(c.claim, done()) for c in claimed]
    assert await storage.jobs.finalize(items) == [True, True, True]
    assert (await counters(storage, "a"))["succeeded"] == 2
    assert (await counters(storage, "b"))["succeeded"] == 1


async def test_five_hundred_ends_in_one_call_are_counted_exactly(
    storage: Storage, lease: PodLease
) -> None:
    await storage.jobs.enqueue([new_job() for _ in range(500)])
    claimed = await claim(storage, lease, limit=500)
    items = [
        Finalization(c.claim, done() if number % 5 else failed(DAY))
        for number, c in enumerate(claimed)
    ]
    assert await storage.jobs.finalize(items) == [True] * 500
    assert await counters(storage) == {
        "enqueued": 500,
        "claimed": 500,
        "succeeded": 400,
        "failed": 100,
    }


async def test_no_items_are_no_error(storage: Storage) -> None:
    assert await storage.jobs.finalize([]) == []


@pytest.mark.parametrize("ending", [failed(DAY), dead(), snoozed(DAY)])
async def test_a_job_asked_to_cancel_ends_as_cancelled(
    storage: Storage, lease: PodLease, clock: ManualClock, ending: Transition
) -> None:
    claimed = await claimed_one(storage, lease)
    await storage.jobs.cancel(only(claimed.claim.job_id))
    assert await finish(storage, claimed, ending)
    job = await get_job(storage, claimed.claim.job_id)
    assert (job.status, job.cause) == (JobStatus.CANCELLED, Cause.CANCELLED)
    assert job.finished_at == clock.now()
    assert await counters(storage) == {"enqueued": 1, "claimed": 1, "cancelled": 1}


async def test_a_result_that_arrives_after_the_cancel_stands(
    storage: Storage, lease: PodLease
) -> None:
    claimed = await claimed_one(storage, lease)
    await storage.jobs.cancel(only(claimed.claim.job_id))
    assert await finish(storage, claimed, done("1"))
    job = await get_job(storage, claimed.claim.job_id)
    assert (job.status, job.cause, job.result) == (JobStatus.DONE, Cause.SUCCEEDED, "1")
    assert await counters(storage) == {"enqueued": 1, "claimed": 1, "succeeded": 1}


async def test_a_cool_down_pauses_the_queue_from_the_stores_now(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed = await claimed_one(storage, lease)
    clock.advance(3)
    await finish(storage, claimed, snoozed(cooldown=Cooldown(60 * SECOND, 1)))
    [state] = await storage.config.queues()
    assert (state.cooldown_remaining, state.cooldown_level) == (60 * SECOND, 1)
    assert state.cooldown_ended_for == 0 * SECOND
    clock.advance(61)
    [state] = await storage.config.queues()
    assert (state.cooldown_remaining, state.cooldown_ended_for) == (0 * SECOND, SECOND)
    assert state.settings.cooldown == CooldownPolicy()


@pytest.mark.parametrize("one_call", [True, False])
@pytest.mark.parametrize(
    ("given", "remaining", "level"),
    [
        ([(60, 1), (30, 2)], 60, 2),
        ([(30, 2), (60, 1)], 60, 2),
        ([(60, 1), (60, 1)], 60, 1),
        ([(10, 1), (20, 1), (15, 1)], 20, 1),
    ],
)
async def test_the_later_end_and_the_higher_level_of_a_cool_down_stay(
    *,
    storage: Storage,
    lease: PodLease,
    given: list[tuple[int, int]],
    remaining: int,
    level: int,
    one_call: bool,
) -> None:
    await storage.jobs.enqueue([new_job() for _ in given])
    claimed = await claim(storage, lease, limit=len(given))
    items = [
        Finalization(c.claim, snoozed(cooldown=Cooldown(length * SECOND, at_level)))
        for c, (length, at_level) in zip(claimed, given, strict=True)
    ]
    for call in [items] if one_call else [[item] for item in items]:
        await storage.jobs.finalize(call)
    [state] = await storage.config.queues()
    assert (state.cooldown_remaining, state.cooldown_level) == (remaining * SECOND, level)


async def test_a_queue_cools_down_alone(storage: Storage) -> None:
    lease = await register(storage, queues=["a", "b"])
    for queue in ("a", "b"):
        await enqueue_one(storage, queue=queue)
    await run_one(storage, lease, snoozed(cooldown=Cooldown(DAY, 1)), queue="a")
    levels = {s.name: s.cooldown_level for s in await storage.config.queues()}
    assert levels == {"a": 1, "b": 0}


async def test_a_delay_longer_than_any_counter_of_seconds_is_kept(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed = await claimed_one(storage, lease)
    await finish(storage, claimed, failed(36_500 * DAY))
    job = await get_job(storage, claimed.claim.job_id)
    assert job.due_at == clock.now() + 36_500 * DAY


async def test_only_the_end_of_the_last_ended_claim_is_remembered(
    storage: Storage, lease: PodLease
) -> None:
    first = await claimed_one(storage, lease)
    assert await finish(storage, first, snoozed())
    second = await claim_one(storage, lease)
    assert await finish(storage, first, snoozed()), "the newer claim has not ended yet"
    assert await finish(storage, second, snoozed())
    assert not await finish(storage, first, snoozed())
    assert await finish(storage, second, snoozed())
    await storage.jobs.delete(only(second.claim.job_id))
    assert not await finish(storage, second, snoozed())
