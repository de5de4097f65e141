"""Claims by an exchange without ends: due jobs, their order, and the pods that may have them."""

from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock, to_us
from forge_jobs.model.ids import HostId, JobId, new_host_id
from forge_jobs.model.jobs import After, Cause, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Cooldown
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    KIND,
    LEASE,
    MICROSECOND,
    QUEUE,
    SECOND,
    claim,
    claim_for,
    claim_one,
    counters,
    crashed,
    done,
    enqueue_one,
    failed,
    finish,
    get_job,
    new_job,
    only,
    register,
    revive,
    run_one,
    snoozed,
)

pytestmark = pytest.mark.anyio


async def claimed_ids(storage: Storage, lease: PodLease, limit: int) -> list[JobId]:
    """Return everything due, in the order in which claims of ``limit`` hand jobs out."""
    order: list[JobId] = []
    while batch := await claim(storage, lease, limit=limit):
        assert len(batch) <= limit
        order += [claimed.claim.job_id for claimed in batch]
    return order


async def test_a_claim_carries_what_the_handler_needs(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    request = new_job(
        payload='{"n": 1}',
        priority=3,
        max_attempts=7,
        timeout=90 * SECOND,
        tags=("a",),
        metadata='{"owner": "x"}',
        trace='{"traceparent": "t"}',
        run_at=clock.now() - SECOND,
        keep_result=False,
        schedule="nightly",
    )
    await storage.jobs.enqueue([request])
    claimed = await claim_one(storage, lease)
    assert (claimed.claim.queue, claimed.claim.job_id) == (QUEUE, request.id)
    assert (claimed.kind, claimed.payload, claimed.priority) == (KIND, '{"n": 1}', 3)
    assert (claimed.attempt, claimed.max_attempts) == (1, 7)
    assert claimed.claim.token == to_us(claimed.enqueued_at) + 1
    assert (claimed.crashes, claimed.snoozes, claimed.cancel_requested) == (0, 0, False)
    assert (claimed.timeout, claimed.tags, claimed.metadata) == (
        90 * SECOND,
        ("a",),
        '{"owner": "x"}',
    )
    assert (claimed.trace, claimed.schedule) == ('{"traceparent": "t"}', "nightly")
    assert (claimed.run_at, claimed.enqueued_at) == (clock.now() - SECOND, clock.now())
    assert claimed.keep_result is False


async def test_a_claimed_job_is_in_progress_with_its_owner_and_its_first_beat(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    job_id = await enqueue_one(storage)
    clock.advance(5)
    await claim_for(storage, QUEUE, ["worker-1"], 1, frozenset({KIND}), lease)
    job = await get_job(storage, job_id)
    assert (job.status, job.host_id, job.worker_id) == (
        JobStatus.IN_PROGRESS,
        lease.host_id,
        "worker-1",
    )
    assert (job.claimed_at, job.heartbeat_at) == (clock.now(), clock.now())
    assert (job.attempt, job.token, job.finished_at) == (1, to_us(clock.now()), None)
    clock.advance(LEASE - MICROSECOND)
    assert await storage.jobs.stale_claims(LEASE, 10) == []


@pytest.mark.parametrize("limit", [1, 2, 3, 50])
async def test_the_order_is_priority_then_due_time_then_id(
    storage: Storage, lease: PodLease, clock: ManualClock, limit: int
) -> None:
    now = clock.now()
    tied = [new_job(run_at=now) for _ in range(3)]
    early = new_job(run_at=now - SECOND)
    earliest = new_job(run_at=now - SECOND - MICROSECOND)
    urgent = [new_job(run_at=now, priority=-1), new_job(run_at=now, priority=-100)]
    lazy = [new_job(run_at=now - DAY, priority=1), new_job(run_at=now - DAY, priority=100)]
    await storage.jobs.enqueue(
        [lazy[1], tied[2], early, urgent[0], tied[0], lazy[0], urgent[1], tied[1], earliest]
    )
    expected = [urgent[1], urgent[0], earliest, early, *tied, *lazy]
    assert await claimed_ids(storage, lease, limit) == [request.id for request in expected]


@pytest.mark.parametrize("limit", [1, 2, 3, 50])
async def test_kinds_change_nothing_about_the_order(
    storage: Storage, clock: ManualClock, limit: int
) -> None:
    kinds = ("a", "b", "c")
    lease = await register(storage, kinds=(*kinds, "unwanted"))
    now = clock.now()
    early = [new_job(kind=kind, run_at=now - SECOND) for kind in reversed(kinds)]
    tied = [new_job(kind=kind, run_at=now) for kind in (*kinds, "a", "c")]
    earliest = new_job(kind="b", run_at=now - SECOND - MICROSECOND)
    urgent = new_job(kind="c", run_at=now, priority=-1)
    unwanted = [new_job(kind="unwanted", run_at=now - DAY, priority=-2) for _ in range(3)]
    await storage.jobs.enqueue([*tied[::-1], *unwanted, *early[::-1], urgent, earliest])
    order: list[JobId] = []
    while batch := await claim(storage, lease, kinds=kinds, limit=limit):
        order += [claimed.claim.job_id for claimed in batch]
    assert order == [request.id for request in (urgent, earliest, *early, *tied)]


@pytest.mark.parametrize("limit", [1, 2, 50])
async def test_a_retry_takes_its_place_by_its_own_due_time(
    storage: Storage, lease: PodLease, clock: ManualClock, limit: int
) -> None:
    retried = await enqueue_one(storage)
    await run_one(storage, lease, failed(2 * SECOND))
    clock.advance(1)
    before = await enqueue_one(storage)
    clock.advance(2)
    after = await enqueue_one(storage)
    assert await claimed_ids(storage, lease, limit) == [before, retried, after]


@pytest.mark.parametrize("limit", [1, 2, 50])
async def test_a_claim_of_several_kinds_keeps_the_order(
    storage: Storage, clock: ManualClock, limit: int
) -> None:
    kinds = ["a", "b", "c"]
    lease = await register(storage, kinds=kinds)
    requests = [new_job(kind=kinds[n % 3], priority=(n * 7) % 4) for n in range(24)]
    await storage.jobs.enqueue(requests)
    order: list[JobId] = []
    while batch := await claim(storage, lease, limit=limit, kinds=kinds):
        order += [claimed.claim.job_id for claimed in batch]
    expected = sorted(requests, key=lambda request: (request.priority, request.id))
    assert order == [request.id for request in expected]


async def test_no_more_than_the_limit_and_each_job_once(storage: Storage, lease: PodLease) -> None:
    requests = [new_job() for _ in range(25)]
    await storage.jobs.enqueue(requests)
    sizes = [len(await claim(storage, lease, limit=10)) for _ in range(4)]
    assert sizes == [10, 10, 5, 0]
    assert await counters(storage) == {"enqueued": 25, "claimed": 25}


async def test_a_thousand_jobs_in_one_claim(storage: Storage, lease: PodLease) -> None:
    requests = [new_job() for _ in range(1_001)]
    await storage.jobs.enqueue(requests)
    claimed = await claim(storage, lease, limit=1_000)
    assert [c.claim.job_id for c in claimed] == [request.id for request in requests[:1_000]]


async def test_other_queues_are_left_alone(storage: Storage, lease: PodLease) -> None:
    await enqueue_one(storage, queue="other", priority=-50)
    mine = await enqueue_one(storage)
    assert [c.claim.job_id for c in await claim(storage, lease, limit=5)] == [mine]


async def test_only_pending_and_failed_jobs_are_claimed(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    for ending in (done(), crashed(status=JobStatus.DEAD)):
        await enqueue_one(storage)
        await run_one(storage, lease, ending)
    cancelled = await enqueue_one(storage)
    await storage.jobs.cancel(only(cancelled))
    parent = await enqueue_one(storage, delay=DAY)
    await enqueue_one(storage, after=(After(parent),))
    await enqueue_one(storage)
    running = await claim_one(storage, lease)
    clock.advance(SECOND)
    assert await claim(storage, lease, limit=10) == []
    assert (await get_job(storage, running.claim.job_id)).token == running.claim.token


async def test_a_job_that_has_expired_is_not_claimed_from_that_instant_on(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    expired = await enqueue_one(storage, expires_at=clock.now() + SECOND)
    alive = await enqueue_one(storage, expires_at=clock.now() + SECOND + MICROSECOND)
    clock.advance(SECOND)
    assert [c.claim.job_id for c in await claim(storage, lease, limit=5)] == [alive]
    assert (await get_job(storage, expired)).attempt == 0


async def test_attempt_and_token_grow_with_each_claim_of_one_instant(
    storage: Storage, lease: PodLease
) -> None:
    await enqueue_one(storage)
    seen = []
    for transition in (failed(), snoozed(), failed(), done()):
        claimed = await claim_one(storage, lease)
        grown = claimed.claim.token - to_us(claimed.enqueued_at)
        seen.append((claimed.attempt, grown, claimed.snoozes))
        assert await finish(storage, claimed, transition)
    assert seen == [(1, 1, 0), (2, 2, 0), (2, 3, 1), (3, 4, 1)]


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(
    storage: Storage, lease: PodLease
) -> None:
    await enqueue_one(storage)
    await storage.config.set_paused(QUEUE, True)
    assert await claim(storage, lease) == []
    await storage.config.set_paused(QUEUE, False)
    assert len(await claim(storage, lease)) == 1


async def test_a_queue_that_cools_down_gives_nothing_until_the_exact_end(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.jobs.enqueue([new_job(), new_job(), new_job(queue="other")])
    await run_one(storage, lease, snoozed(cooldown=Cooldown(60 * SECOND, 1)))
    clock.advance(60 * SECOND - MICROSECOND)
    lease = await register(storage, queues=(QUEUE, "other"))
    assert await claim(storage, lease, limit=5) == []
    assert len(await claim(storage, lease, queue="other")) == 1
    clock.advance(MICROSECOND)
    assert len(await claim(storage, lease, limit=5)) == 2


async def test_a_cleared_cool_down_gives_work_at_once(storage: Storage, lease: PodLease) -> None:
    await enqueue_one(storage)
    await run_one(storage, lease, snoozed(cooldown=Cooldown(60 * SECOND, 1)))
    await storage.config.clear_cooldown(QUEUE)
    assert len(await claim(storage, lease)) == 1


async def test_a_lease_gives_work_until_the_instant_it_runs_out(
    storage: Storage, clock: ManualClock
) -> None:
    lease = await register(storage, lease_for=LEASE)
    first, second = await enqueue_one(storage), await enqueue_one(storage)
    clock.advance(LEASE - MICROSECOND)
    assert (await claim_one(storage, lease)).claim.job_id == first
    clock.advance(MICROSECOND)
    assert await claim(storage, lease) == []
    assert (await get_job(storage, second)).status is JobStatus.PENDING


async def test_a_lease_of_another_epoch_gives_nothing(storage: Storage, lease: PodLease) -> None:
    await enqueue_one(storage)
    assert await claim(storage, PodLease(lease.host_id, "made-up")) == []
    current = await register(storage, host_id=lease.host_id)
    assert await claim(storage, lease) == []
    assert len(await claim(storage, current)) == 1


async def test_an_unknown_or_unregistered_pod_gets_nothing(
    storage: Storage, lease: PodLease
) -> None:
    await enqueue_one(storage)
    assert await claim(storage, PodLease(HostId(new_host_id()), lease.epoch)) == []
    await storage.procs.unregister(lease)
    assert await claim(storage, lease) == []


async def test_a_pod_gets_nothing_of_a_queue_that_it_does_not_declare(storage: Storage) -> None:
    stranger, declares = await register(storage, queues=("other",)), await register(storage)
    await enqueue_one(storage)
    assert await claim(storage, stranger) == []
    assert len(await claim(storage, declares)) == 1


async def test_a_refused_claim_puts_nothing_on_hold(storage: Storage, lease: PodLease) -> None:
    job_id = await enqueue_one(storage, kind="nobody.knows")
    await claim(storage, PodLease(lease.host_id, "made-up"))
    assert (await get_job(storage, job_id)).hold is None


async def test_claims_beyond_the_worker_ids_are_held_ahead(
    storage: Storage, lease: PodLease
) -> None:
    ids = [await enqueue_one(storage) for _ in range(4)]
    claimed = await claim_for(storage, QUEUE, ["w1", "w2"], 4, frozenset({KIND}), lease)
    assert [c.claim.job_id for c in claimed] == ids
    stored = [await get_job(storage, job_id) for job_id in ids]
    assert [job.worker_id for job in stored] == ["w1", "w2", "", ""]
    assert [job.started_at for job in stored[2:]] == [None, None]
    assert {job.status for job in stored} == {JobStatus.IN_PROGRESS}


async def with_a_crash(storage: Storage, clock: ManualClock, **overrides: object) -> JobId:
    """A due job with one crash on record."""
    lease = await register(storage)
    job_id = await enqueue_one(storage, **overrides)
    claimed = await claim_one(storage, lease)
    assert claimed.claim.job_id == job_id
    clock.advance(LEASE)
    assert await revive(storage, claimed)
    return job_id


async def test_a_job_with_a_crash_is_claimed_for_a_worker_but_never_ahead(
    storage: Storage, clock: ManualClock
) -> None:
    crashed_job = await with_a_crash(storage, clock)
    lease = await register(storage)
    plain = await enqueue_one(storage)
    ahead = await claim_for(storage, QUEUE, [], 5, frozenset({KIND}), lease)
    assert [c.claim.job_id for c in ahead] == [plain]
    [claimed] = await claim_for(storage, QUEUE, ["w1"], 5, frozenset({KIND}), lease)
    assert (claimed.claim.job_id, claimed.crashes, claimed.attempt) == (crashed_job, 1, 2)


async def test_a_crashed_job_behind_the_worker_ids_waits_for_a_worker(
    storage: Storage, clock: ManualClock
) -> None:
    crashed_job = await with_a_crash(storage, clock, priority=1)
    lease = await register(storage)
    first, later = await enqueue_one(storage), await enqueue_one(storage, priority=2)
    claimed = await claim_for(storage, QUEUE, ["w1"], 5, frozenset({KIND}), lease)
    assert [c.claim.job_id for c in claimed] == [first, later]
    assert (await get_job(storage, first)).worker_id == "w1"
    [second] = await claim_for(storage, QUEUE, ["w2"], 5, frozenset({KIND}), lease)
    assert second.claim.job_id == crashed_job


async def test_a_finished_cause_is_told_apart_from_its_claim(
    storage: Storage, lease: PodLease
) -> None:
    job_id = await enqueue_one(storage)
    await run_one(storage, lease, failed())
    assert (await get_job(storage, job_id)).cause is Cause.FAILED
    await claim_one(storage, lease)
    assert (await get_job(storage, job_id)).finished_at is None


@pytest.mark.parametrize("head", ["future", "held", "other priority and queue", "expired", "other"])
async def test_two_thousand_jobs_at_the_head_change_nothing(
    storage: Storage, clock: ManualClock, head: str
) -> None:
    lease = await register(storage)
    fields = {
        "future": {"run_at": clock.now() + SECOND, "priority": -100},
        "held": {"kind": "nobody.knows", "priority": -100},
        "other priority and queue": {"queue": "q2", "priority": -100},
        "expired": {"expires_at": clock.now(), "priority": -100},
        "other": {"kind": "other.pods", "priority": -100},
    }[head]
    await register(storage, kinds=["other.pods"])
    for _ in range(2):
        await storage.jobs.enqueue([new_job(**fields) for _ in range(1_000)])
    mine = [await enqueue_one(storage, priority=level) for level in (0, 1, 2)]
    order: list[JobId] = []
    # A claim may come back short only while unrunnable jobs are moved out of the way.
    for _ in range(50 if head == "held" else 2):
        order += [c.claim.job_id for c in await claim(storage, lease, limit=2)]
        if len(order) == len(mine):
            break
    assert order == mine


async def test_a_claim_costs_other_jobs_nothing(storage: Storage, lease: PodLease) -> None:
    first, second = await enqueue_one(storage), await enqueue_one(storage)
    before = await get_job(storage, second)
    assert (await claim_one(storage, lease)).claim.job_id == first
    assert await get_job(storage, second) == before


async def test_work_due_at_different_microseconds_is_told_apart(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    later = await enqueue_one(storage, run_at=clock.now() + timedelta(microseconds=2))
    sooner = await enqueue_one(storage, run_at=clock.now() + timedelta(microseconds=1))
    clock.advance(timedelta(microseconds=1))
    assert [c.claim.job_id for c in await claim(storage, lease, limit=5)] == [sooner]
    clock.advance(timedelta(microseconds=1))
    assert [c.claim.job_id for c in await claim(storage, lease, limit=5)] == [later]
