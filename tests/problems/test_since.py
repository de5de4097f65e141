"""``explain`` says since when the reason holds: each reason, on each store."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import NamedTuple

import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.clock import ManualClock
from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, Cause, ClaimedJob, Hold, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import CooldownPolicy, QueueChange, RateLimit
from forge_jobs.model.transitions import Cooldown, Transition
from forge_jobs.policy.explanations import Reason
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.storage.protocols import Storage
from tests.problems.conftest import HOUR, MINUTE, SECOND, Fleet
from tests.support.factories import (
    QUEUE,
    claim,
    claim_one,
    dead,
    done,
    enqueue_one,
    failed,
    finish,
    held,
    rate_limited,
)

pytestmark = pytest.mark.anyio


class Told(NamedTuple):
    """A job whose reason holds since then, or None where the store does not know."""

    job_id: JobId
    since: datetime | None


class Stage:
    """A store in which a minute passes between two things."""

    def __init__(self, storage: Storage, fleet: Fleet, clock: ManualClock) -> None:
        self.storage, self.fleet, self.clock = storage, fleet, clock

    def later(self) -> datetime:
        """Let a minute pass."""
        self.clock.advance(MINUTE)
        return self.clock.now()

    async def job(self, **options: object) -> JobId:
        return await enqueue_one(self.storage, **options)

    async def running(self, lease: PodLease) -> ClaimedJob:
        await self.job()
        self.later()
        claimed = await claim_one(self.storage, lease)
        await self.storage.jobs.heartbeat(lease, [held(claimed, "worker")], 24 * HOUR)
        return claimed

    async def ended(self, transition: Transition) -> Told:
        claimed = await self.running(await self.fleet.start())
        since = self.later()
        assert await finish(self.storage, claimed, transition)
        return Told(claimed.claim.job_id, since)

    async def event(self, kind: EventKind, job_id: JobId) -> None:
        event = TimelineEvent(at=self.clock.now(), kind=kind, queue=QUEUE, job_id=job_id)
        assert await self.storage.jobs.append_events([event]) == []


async def _parents(stage: Stage) -> Told:
    parent = await stage.job()
    since = stage.later()
    return Told(await stage.job(after=(After(parent),)), since)


async def _failed_parent(stage: Stage) -> Told:
    lease = await stage.fleet.start()
    parent = await stage.job()
    child = await stage.job(after=(After(parent, on_failure="hold"),))
    claimed = await claim_one(stage.storage, lease)
    since = stage.later()
    assert await finish(stage.storage, claimed, dead())
    await hand_over_once(stage.storage.jobs)
    return Told(child, since)


async def _expired(stage: Stage) -> Told:
    since = stage.clock.now() + 10 * SECOND
    return Told(await stage.job(expires_at=since), since)


async def _unknown_kind(stage: Stage) -> Told:
    lease = await stage.fleet.start()
    since = stage.clock.now()
    job_id = await stage.job(kind="new.kind")
    await stage.job()
    stage.later()
    await claim_one(stage.storage, lease)
    [job] = (await stage.storage.jobs.get([job_id])).values()
    assert job.hold is Hold.UNKNOWN_KIND
    return Told(job_id, since)


async def _not_due(stage: Stage) -> Told:
    since = stage.later()
    return Told(await stage.job(delay=HOUR), since)


async def _retry(stage: Stage) -> Told:
    return await stage.ended(failed(HOUR))


async def _rate_limited(stage: Stage) -> Told:
    await stage.storage.config.set_rate_limit("gh", RateLimit(1, HOUR))
    claimed = await stage.running(await stage.fleet.start())
    await stage.event(EventKind.STARTED, claimed.claim.job_id)
    since = stage.later()
    assert await finish(stage.storage, claimed, rate_limited(HOUR))
    await stage.event(EventKind.RETRIED, claimed.claim.job_id)
    return Told(claimed.claim.job_id, since)


async def _limited(stage: Stage) -> Told:
    await stage.storage.config.ensure_limits(QUEUE, {"api": 1})
    lease = await stage.fleet.start()
    await stage.job(limit_name="api")
    since = stage.later()
    job_id = await stage.job(limit_name="api")
    await claim_one(stage.storage, lease)
    await claim(stage.storage, lease)
    [job] = (await stage.storage.jobs.get([job_id])).values()
    assert job.hold is Hold.LIMIT
    return Told(job_id, since)


async def _key_missing(stage: Stage) -> Told:
    claimed = await stage.running(await stage.fleet.start())
    since = stage.clock.now()
    back = Transition(status=JobStatus.PENDING, cause=Cause.KEY_MISSING, hand_back=True, delay=HOUR)
    assert await finish(stage.storage, claimed, back)
    return Told(claimed.claim.job_id, since)


async def _struck(stage: Stage) -> Told:
    claimed = await stage.running(await stage.fleet.start())
    since = stage.clock.now()
    back = Transition(status=JobStatus.PENDING, cause=Cause.STRUCK, hand_back=True, delay=HOUR)
    assert await finish(stage.storage, claimed, back)
    return Told(claimed.claim.job_id, since)


async def _paused(stage: Stage) -> Told:
    await stage.fleet.start()
    job_id = await stage.job()
    since = stage.later()
    await stage.storage.config.set_paused(QUEUE, True)
    return Told(job_id, since)


async def _cooling(stage: Stage) -> Told:
    lease = await stage.fleet.start()
    policy = CooldownPolicy(base=HOUR, cap=HOUR)
    await stage.storage.config.set_queue(QUEUE, QueueChange(cooldown=policy))
    claimed = await stage.running(lease)
    waiting = await stage.job()
    since = stage.later()
    throttled = Transition(
        status=JobStatus.PENDING, cause=Cause.THROTTLED, hand_back=True, cooldown=Cooldown(HOUR, 1)
    )
    assert await finish(stage.storage, claimed, throttled)
    return Told(waiting, since)


async def _no_workers(stage: Stage) -> Told:
    await stage.fleet.start()
    since = stage.clock.now()
    job_id = await stage.job()
    stage.later()
    # Settings do not tell when they were made: the job waits since it is due.
    await stage.storage.config.set_queue(QUEUE, QueueChange(max_workers=0))
    return Told(job_id, since)


async def _no_pod(stage: Stage) -> Told:
    lease = await stage.fleet.start()
    job_id = await stage.job()
    since = stage.later()
    await stage.fleet.stop(lease)
    return Told(job_id, since)


async def _draining(stage: Stage) -> Told:
    lease = await stage.fleet.start()
    job_id = await stage.job()
    since = stage.later()
    await stage.fleet.tell(EventKind.POD_DRAINING, "grace 30s", lease.host_id)
    await stage.storage.procs.set_draining(lease)
    return Told(job_id, since)


async def _no_leader(stage: Stage) -> Told:
    await stage.fleet.start(slots=0)
    leader = await stage.storage.cron.leader()
    assert leader is not None
    job_id = await stage.job()
    since = stage.later()
    await stage.storage.cron.resign(leader.host_id, leader.term)
    return Told(job_id, since)


async def _no_slots(stage: Stage) -> Told:
    job_id = await stage.job()
    since = stage.later()
    await stage.fleet.start(slots=0)
    return Told(job_id, since)


async def _no_pod_with_kind(stage: Stage) -> Told:
    await stage.fleet.start()
    since = stage.later()
    return Told(await stage.job(kind="new.kind"), since)


async def _busy(stage: Stage) -> Told:
    await stage.running(await stage.fleet.start())
    since = stage.later()
    return Told(await stage.job(), since)


async def _ready(stage: Stage) -> Told:
    await stage.fleet.start()
    since = stage.later()
    return Told(await stage.job(), since)


async def _cancelling(stage: Stage) -> Told:
    claimed = await stage.running(await stage.fleet.start())
    since = stage.later()
    await stage.storage.jobs.cancel(JobFilter(ids=(claimed.claim.job_id,)))
    return Told(claimed.claim.job_id, since)


async def _ahead(stage: Stage) -> Told:
    lease = await stage.fleet.start()
    await stage.job()
    since = stage.later()
    claimed = await claim_one(stage.storage, lease)
    return Told(claimed.claim.job_id, since)


async def _runs(stage: Stage) -> Told:
    claimed = await stage.running(await stage.fleet.start())
    return Told(claimed.claim.job_id, stage.clock.now())


async def _overruns(stage: Stage) -> Told:
    lease = await stage.fleet.start()
    await stage.job(timeout=10 * SECOND)
    claimed = await claim_one(stage.storage, lease)
    await stage.storage.jobs.heartbeat(lease, [held(claimed, "worker")], 24 * HOUR)
    return Told(claimed.claim.job_id, stage.clock.now() + 10 * SECOND)


async def _silent(stage: Stage) -> Told:
    lease = await stage.fleet.start(lease_for=2 * MINUTE)
    await stage.job()
    claimed = await claim_one(stage.storage, lease)
    stage.later()
    await stage.storage.jobs.heartbeat(lease, [held(claimed, "worker")], 10 * SECOND)
    return Told(claimed.claim.job_id, stage.clock.now())


STAGES: dict[Reason, Callable[[Stage], Awaitable[Told]]] = {
    Reason.BLOCKED_BY_PARENTS: _parents,
    Reason.BLOCKED_BY_FAILED_PARENT: _failed_parent,
    Reason.EXPIRED: _expired,
    Reason.UNKNOWN_KIND: _unknown_kind,
    Reason.NOT_DUE: _not_due,
    Reason.WAITS_FOR_RETRY: _retry,
    Reason.RATE_LIMITED: _rate_limited,
    Reason.LIMITED: _limited,
    Reason.KEY_MISSING: _key_missing,
    Reason.STRUCK: _struck,
    Reason.PAUSED: _paused,
    Reason.COOLING_DOWN: _cooling,
    Reason.MAX_WORKERS_ZERO: _no_workers,
    Reason.NO_POD: _no_pod,
    Reason.ONLY_DRAINING_PODS: _draining,
    Reason.NO_LEADER: _no_leader,
    Reason.NO_SLOTS: _no_slots,
    Reason.NO_POD_WITH_KIND: _no_pod_with_kind,
    Reason.SLOTS_BUSY: _busy,
    Reason.READY: _ready,
    Reason.CANCELLING: _cancelling,
    Reason.HELD_AHEAD: _ahead,
    Reason.RUNNING: _runs,
    Reason.OVERRUNNING: _overruns,
    Reason.OWNER_SILENT: _silent,
    Reason.DONE: lambda stage: stage.ended(done()),
    Reason.DEAD: lambda stage: stage.ended(dead()),
    Reason.CANCELLED: lambda stage: stage.ended(
        Transition(status=JobStatus.CANCELLED, cause=Cause.CANCELLED)
    ),
}
ELSEWHERE = {Reason.UNREADABLE, Reason.QUEUE_UNKNOWN, Reason.NOT_RELAYED, Reason.SET_ASIDE}
"""No call makes these: a spoilt record, and a queue whose record has gone beside its jobs. The jobs
of an outbox are not stored yet."""


def test_every_reason_has_a_stage() -> None:
    assert set(STAGES) | ELSEWHERE == set(Reason)


@pytest.mark.parametrize("reason", STAGES)
async def test_each_reason_says_since_when(
    storage: Storage, fleet: Fleet, clock: ManualClock, reason: Reason
) -> None:
    clock.advance(MINUTE)
    job_id, since = await STAGES[reason](Stage(storage, fleet, clock))
    clock.advance(30 * SECOND)
    told = await JobClient(storage).explain(job_id)
    assert told.reason is reason, told.text
    assert told.since == since


async def test_a_job_that_falls_due_later_waits_since_then(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start()
    job_id = await enqueue_one(storage, delay=10 * MINUTE)
    due = clock.now() + 10 * MINUTE
    clock.advance(MINUTE)
    await fleet.stop(lease)
    clock.advance(timedelta(hours=1))
    told = await JobClient(storage).explain(job_id)
    assert (told.reason, told.since) == (Reason.NO_POD, due)
