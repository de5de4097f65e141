"""Incidents: what makes each problem, when that began, and what ends the problem.

Each maker plants an incident in a store whose clock the test moves, beside a fleet that is well.
"""

from collections.abc import Awaitable, Callable

import httpx

from forge_jobs.model.events import EventKind
from forge_jobs.model.failures import FailureSample
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import After, Cause, JobStatus
from forge_jobs.model.processes import AllocationChange, Slots
from forge_jobs.model.queues import CooldownPolicy, QueueChange, RateLimit
from forge_jobs.model.schedules import Firing
from forge_jobs.model.series import Depth
from forge_jobs.model.strikes import StrikeRule, struck_by
from forge_jobs.model.transitions import Cooldown, Transition
from forge_jobs.policy.judgement.problems.problem import Code
from forge_jobs.runtime.passes.cleanup import hand_over_once
from tests.support import store_incidents
from tests.support.drills import Drill, Planted, asked
from tests.support.factories import (
    KIND,
    LEASE,
    QUEUE,
    claim,
    claim_one,
    crashed,
    dead,
    done,
    enqueue_one,
    finish,
    new_job,
    rate_limited,
    revive,
)
from tests.support.firings import a_spec
from tests.support.fleets import HOUR, MINUTE, SECOND


async def _unserved(drill: Drill) -> Planted:
    lease = await drill.pod()
    await enqueue_one(drill.storage)
    drill.clock.advance(MINUTE)
    since = drill.clock.now()
    await drill.fleet.stop(lease)

    async def end(_: httpx.AsyncClient) -> None:
        await drill.pod()

    return Planted(since, end)


async def _not_granted(drill: Drill) -> Planted:
    lease = await drill.pod(slots=0)
    since = drill.clock.now()
    await enqueue_one(drill.storage)

    async def end(_: httpx.AsyncClient) -> None:
        procs = drill.storage.procs
        [found] = [each for each in await procs.allocations() if each.queue == QUEUE]
        slots = {lease.host_id: Slots(1, 1)}
        change = AllocationChange(queue=QUEUE, version=found.version, slots=slots)
        assert await procs.allocate([change]) == [True]

    return Planted(since, end)


async def _paused(drill: Drill) -> Planted:
    await drill.pod()
    await enqueue_one(drill.storage)
    drill.clock.advance(MINUTE)
    since = drill.clock.now()
    await drill.storage.config.set_paused(QUEUE, True)

    async def end(caller: httpx.AsyncClient) -> None:
        await asked(caller, "POST", f"/queues/{QUEUE}/resume")

    return Planted(since, end)


async def _cooling(drill: Drill) -> Planted:
    lease = await drill.pod()
    for _ in range(2):
        await enqueue_one(drill.storage)
    claimed = await claim_one(drill.storage, lease)
    policy = CooldownPolicy(base=10 * MINUTE)
    await drill.storage.config.set_queue(QUEUE, QueueChange(cooldown=policy))
    throttled = Transition(
        status=JobStatus.PENDING,
        cause=Cause.THROTTLED,
        hand_back=True,
        cooldown=Cooldown(10 * MINUTE, 1),
    )
    since = drill.clock.now()
    assert await finish(drill.storage, claimed, throttled)

    async def end(caller: httpx.AsyncClient) -> None:
        await asked(caller, "DELETE", f"/queues/{QUEUE}/cool-down")

    return Planted(since, end)


async def _unknown_kind(drill: Drill) -> Planted:
    lease = await drill.pod()
    since = drill.clock.now()
    await enqueue_one(drill.storage, kind="new.kind")
    await enqueue_one(drill.storage)
    await claim_one(drill.storage, lease)

    async def end(_: httpx.AsyncClient) -> None:
        await drill.fleet.start("elsewhere", kinds=("new.kind",))

    return Planted(since, end)


async def _struck(drill: Drill) -> Planted:
    await drill.pod()
    since = drill.clock.now()
    rule = StrikeRule(kind=KIND, reason="the provider is down")
    await drill.storage.config.put_strike("no mail", rule, "ada")
    [strike] = await drill.storage.config.strikes()
    await drill.storage.jobs.enqueue([new_job(struck=struck_by(strike)) for _ in range(3)])

    async def end(caller: httpx.AsyncClient) -> None:
        await asked(caller, "DELETE", "/strikes/no%20mail")

    return Planted(since, end)


async def _children_held(drill: Drill) -> Planted:
    lease = await drill.pod()
    parent = await enqueue_one(drill.storage)
    await enqueue_one(drill.storage, after=(After(parent, on_failure="hold"),))
    claimed = await claim_one(drill.storage, lease)
    drill.clock.advance(MINUTE)
    since = drill.clock.now()
    assert await finish(drill.storage, claimed, dead())
    await hand_over_once(drill.storage.jobs)

    async def end(caller: httpx.AsyncClient) -> None:
        await asked(caller, "POST", "/jobs/requeue", {"ids": [parent]})

    return Planted(since, end)


async def _error_burst(drill: Drill) -> Planted:
    await drill.pod()
    since = drill.next_minute()
    sample = FailureSample(
        queue=QUEUE,
        group="oops",
        kind=KIND,
        type="OSError",
        message="no route to …",
        minute=since,
        first_at=since,
        last_at=since,
        retried=10,
        dead=2,
    )
    assert await drill.storage.jobs.add_failures([sample]) == []

    async def end(caller: httpx.AsyncClient) -> None:
        await asked(caller, "POST", f"/queues/{QUEUE}/pause")
        drill.clock.advance(6 * MINUTE)

    return Planted(since, end)


async def _crash_loop(drill: Drill) -> Planted:
    lease = await drill.pod(slots=3)
    since = drill.clock.now() + LEASE
    for number in range(3):
        if not number:
            await enqueue_one(drill.storage)
        claimed = await claim_one(drill.storage, lease)
        drill.clock.advance(LEASE)
        status = JobStatus.DEAD if number == 2 else JobStatus.PENDING
        assert await revive(drill.storage, claimed, crashed(status=status))

    async def end(caller: httpx.AsyncClient) -> None:
        await asked(caller, "POST", "/jobs/delete", {"ids": [claimed.claim.job_id]})

    return Planted(since, end)


async def _long_runner(drill: Drill) -> Planted:
    lease = await drill.pod()
    await drill.flow(delays=[1.0], runs=[10.0] * 20)
    begun = drill.clock.now()
    claimed = await drill.running(lease)
    drill.clock.advance(MINUTE)
    await drill.roll_up()

    async def end(caller: httpx.AsyncClient) -> None:
        await asked(caller, "POST", "/jobs/cancel", {"ids": [claimed.claim.job_id]})
        ended = Transition(status=JobStatus.CANCELLED, cause=Cause.CANCELLED)
        assert await finish(drill.storage, claimed.claim, ended)

    # Ten times the middle of a bucket, which is ten percent wide.
    return Planted(begun + 100 * SECOND, end, slack=6 * SECOND)


async def _cancel_ignored(drill: Drill) -> Planted:
    claimed = await drill.running(await drill.pod())
    drill.clock.advance(MINUTE)
    since = drill.clock.now()
    await drill.storage.jobs.cancel(JobFilter(ids=(claimed.claim.job_id,)))

    async def end(_: httpx.AsyncClient) -> None:
        assert await finish(drill.storage, claimed.claim, done())

    return Planted(since, end)


async def _limit_starving(drill: Drill) -> Planted:
    lease = await drill.pod()
    await drill.storage.config.set_rate_limit("api", RateLimit(1, HOUR))
    since = drill.clock.now()
    await enqueue_one(drill.storage)
    claimed = await claim_one(drill.storage, lease)
    assert await finish(drill.storage, claimed, rate_limited(HOUR, rate_limit="api"))

    async def end(caller: httpx.AsyncClient) -> None:
        await asked(caller, "PUT", "/limits/api", {"capacity": 10, "per": 1})

    return Planted(since, end)


async def _key_starving(drill: Drill) -> Planted:
    lease = await drill.pod(slots=3)
    await drill.storage.config.ensure_limits(QUEUE, {"hosts": 1})
    await drill.flow(delays=[1.0], runs=[10.0] * 20)
    for key in "aab":
        await enqueue_one(drill.storage, limit_name="hosts", limit_key=key)
    drill.clock.advance(MINUTE)
    since = drill.clock.now()
    held_up, *_ = await claim(drill.storage, lease, limit=3)
    await drill.roll_up()

    async def end(caller: httpx.AsyncClient) -> None:
        job_id = held_up.claim.job_id
        await asked(caller, "POST", "/jobs/cancel", {"ids": [job_id]})
        ended = Transition(status=JobStatus.CANCELLED, cause=Cause.CANCELLED)
        assert await finish(drill.storage, held_up, ended)
        assert len(await claim(drill.storage, lease)) == 1

    return Planted(since + 10 * SECOND, end, slack=SECOND)


async def _silent(drill: Drill) -> Planted:
    since = drill.clock.now()
    lease = await drill.pod(lease_for=15 * SECOND)

    async def end(_: httpx.AsyncClient) -> None:
        drill.clock.advance(15 * SECOND)
        assert await drill.storage.procs.drop_dead_pods(SECOND, 10) == [lease.host_id]

    return Planted(since, end)


async def _flapping(drill: Drill) -> Planted:
    since = drill.clock.now()
    for _ in range(2):
        await drill.fleet.stop(await drill.pod(label="web-1"))
        drill.clock.advance(MINUTE)
    await drill.pod(label="web-1")

    async def end(_: httpx.AsyncClient) -> None:
        drill.clock.advance(10 * MINUTE)

    return Planted(since, end)


async def _drain_stuck(drill: Drill) -> Planted:
    lease = await drill.pod()
    claimed = await drill.running(lease)
    await drill.fleet.tell(EventKind.POD_DRAINING, "grace 30s", lease.host_id)
    await drill.storage.procs.set_draining(lease)

    async def end(_: httpx.AsyncClient) -> None:
        assert await finish(drill.storage, claimed.claim, done())

    return Planted(drill.clock.now() + 30 * SECOND, end)


async def _no_leader(drill: Drill) -> Planted:
    lease = await drill.pod()
    leader = await drill.storage.cron.leader()
    assert leader is not None
    drill.clock.advance(MINUTE)
    since = drill.clock.now()
    await drill.storage.cron.resign(leader.host_id, leader.term)

    async def end(_: httpx.AsyncClient) -> None:
        await drill.storage.cron.lead(lease.host_id, HOUR)

    return Planted(since, end)


async def _schedule_broken(drill: Drill) -> Planted:
    cron = drill.storage.cron
    await cron.put_schedule(a_spec(name="nightly"), drill.clock.now())
    [schedule] = await cron.schedules()
    drill.clock.advance(SECOND)
    error = "payload: is no object"
    firing = Firing(name="nightly", version=schedule.version, jobs=(), next_at=None, error=error)
    assert await cron.fire([firing]) == [True]
    await drill.fleet.tell(EventKind.SCHEDULE_DISABLED, f"nightly: {error}")

    async def end(caller: httpx.AsyncClient) -> None:
        await asked(caller, "PATCH", "/schedules/nightly", {"expression": "@daily"})

    return Planted(drill.clock.now(), end)


async def _schedule_late(drill: Drill) -> Planted:
    since = drill.clock.now() + MINUTE
    await drill.storage.cron.put_schedule(a_spec(name="nightly"), since)

    async def end(caller: httpx.AsyncClient) -> None:
        await asked(caller, "POST", "/schedules/nightly/pause")

    return Planted(since, end)


async def _growing(drill: Drill) -> Planted:
    await drill.pod()
    await enqueue_one(drill.storage)

    async def depth(due: int) -> None:
        drill.next_minute()
        await drill.storage.jobs.record_depths({QUEUE: Depth(due=due, granted=1, max_workers=1)})

    await depth(5)
    since = drill.minute() + MINUTE
    for due in range(6, 16):
        await depth(due)

    async def end(caller: httpx.AsyncClient) -> None:
        await asked(caller, "PATCH", f"/queues/{QUEUE}", {"max_workers": 2})
        await depth(9)

    return Planted(since, end)


async def _objective(drill: Drill) -> Planted:
    await drill.pod()
    await drill.storage.config.set_queue(QUEUE, QueueChange(objective="99% within 30s"))
    since = drill.next_minute() + MINUTE
    await drill.flow(delays=[100.0] * 10, runs=[1.0])
    drill.next_minute()

    async def end(caller: httpx.AsyncClient) -> None:
        await asked(caller, "PATCH", f"/queues/{QUEUE}", {"max_workers": 5})
        drill.clock.advance(5 * MINUTE)

    return Planted(since, end)


async def _blocked(drill: Drill) -> Planted:
    lease = await drill.pod()
    since = drill.clock.now()
    await drill.gauges(lease, blocked_since=since, blocked_in="shop.pay")

    async def end(_: httpx.AsyncClient) -> None:
        await drill.gauges(lease)

    return Planted(since, end)


async def _skewed(drill: Drill) -> Planted:
    lease = await drill.pod()
    since = drill.next_minute()
    await drill.gauges(lease, clock_skew_ms=-4000.0)

    async def end(_: httpx.AsyncClient) -> None:
        await drill.gauges(lease, clock_skew_ms=3.0)

    return Planted(since, end)


async def _polling(drill: Drill) -> Planted:
    lease = await drill.pod()
    since = drill.next_minute()
    await drill.gauges(lease, listening=False)

    async def end(_: httpx.AsyncClient) -> None:
        await drill.gauges(lease)

    return Planted(since, end)


async def _behind(drill: Drill) -> Planted:
    await drill.pod()
    since = drill.next_minute()
    await enqueue_one(drill.storage)
    await drill.flow(delays=[1.0], runs=[1.0])

    async def end(_: httpx.AsyncClient) -> None:
        await drill.roll_up()

    return Planted(since, end)


INCIDENTS: dict[Code, Callable[[Drill], Awaitable[Planted]]] = {
    Code.UNSERVED_QUEUE: _unserved,
    Code.SLOTS_NOT_GRANTED: _not_granted,
    Code.PAUSED_WITH_WORK: _paused,
    Code.COOLING_WITH_WORK: _cooling,
    Code.UNKNOWN_KIND: _unknown_kind,
    Code.STRUCK_WITH_WORK: _struck,
    Code.CHILDREN_HELD: _children_held,
    Code.ERROR_BURST: _error_burst,
    Code.CRASH_LOOP: _crash_loop,
    Code.LONG_RUNNER: _long_runner,
    Code.CANCEL_IGNORED: _cancel_ignored,
    Code.LIMIT_STARVING: _limit_starving,
    Code.KEY_STARVING: _key_starving,
    Code.POD_SILENT: _silent,
    Code.POD_FLAPPING: _flapping,
    Code.DRAIN_STUCK: _drain_stuck,
    Code.NO_LEADER: _no_leader,
    Code.SCHEDULE_BROKEN: _schedule_broken,
    Code.SCHEDULE_LATE: _schedule_late,
    Code.BACKLOG_GROWING: _growing,
    Code.OBJECTIVE_MISSED: _objective,
    Code.LOOP_BLOCKED: _blocked,
    Code.CLOCK_SKEW: _skewed,
    Code.POLLING_ONLY: _polling,
    Code.ROLL_UP_BEHIND: _behind,
    Code.STORE_SLOW: store_incidents.slow,
    Code.STORE_FULL: store_incidents.full,
    Code.POOL_EXHAUSTED: store_incidents.exhausted,
    Code.OLD_TRANSACTION: store_incidents.old_transaction,
    Code.OUTBOX_WAITING: store_incidents.outbox_waits,
    Code.OUTBOX_SET_ASIDE: store_incidents.outbox_refused,
}
"""Makers by the code of the problem that must be seen."""
