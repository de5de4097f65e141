"""Problems of pods, the leader and schedules, read from a store."""

from datetime import timedelta
from typing import Any

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.events import EventKind
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import After, JobStatus
from forge_jobs.model.metrics import MINUTE as A_MINUTE
from forge_jobs.model.processes import PodGauges
from forge_jobs.model.queues import QueueChange, RateLimit
from forge_jobs.model.schedules import Firing
from forge_jobs.operating.snapshots.reading import problems
from forge_jobs.policy.judgement.problems.problem import Code
from forge_jobs.storage.protocols import Storage
from tests.problems.conftest import HOUR, MINUTE, SECOND, Fleet
from tests.support.factories import QUEUE, claim_one, dead, enqueue_one, finish, held
from tests.support.faulty import Faults, faulty
from tests.support.firings import a_spec

pytestmark = pytest.mark.anyio

GAUGES = {
    "cpu_percent": 1.0,
    "memory_bytes": 1,
    "disk_free_bytes": 1,
    "store_latency_ms": 1.0,
    "loop_lag_ms": 1.0,
    "running": 0,
}


async def test_a_pod_that_beats_no_more(storage: Storage, fleet: Fleet, clock: ManualClock) -> None:
    await fleet.start()
    lease = await fleet.start("other", lease_for=15 * SECOND)
    await enqueue_one(storage, queue="other")
    await claim_one(storage, lease, queue="other")
    beat = clock.now()
    clock.advance(14 * SECOND)
    assert await fleet.codes() == []
    clock.advance(SECOND)
    found = await fleet.the_problem(Code.POD_SILENT, beat)
    assert (found.jobs, found.about) == (1, lease.host_id)


async def test_a_pod_that_starts_again_and_again(fleet: Fleet, clock: ManualClock) -> None:
    await fleet.start()
    await fleet.start("rare", label="web-1")
    clock.advance(HOUR)
    first = clock.now()
    for _ in range(2):
        await fleet.stop(await fleet.start("other", label="web-1"), "other")
        clock.advance(MINUTE)
    assert await fleet.codes() == []
    await fleet.start("other", label="web-1")
    await fleet.the_problem(Code.POD_FLAPPING, first)
    # Others start in a row as well, each once: a deploy.
    for number in range(5):
        await fleet.start("other", label=f"new-{number}")
    assert await fleet.codes() == [Code.POD_FLAPPING]
    clock.advance(10 * MINUTE)
    assert await fleet.codes() == []


async def test_a_pod_that_does_not_stop(storage: Storage, fleet: Fleet, clock: ManualClock) -> None:
    await fleet.start()
    lease = await fleet.start("other")
    await enqueue_one(storage, queue="other")
    await claim_one(storage, lease, queue="other")
    clock.advance(MINUTE)
    await fleet.tell(EventKind.POD_DRAINING, "grace 30s", lease.host_id)
    await storage.procs.set_draining(lease)
    over = clock.now() + 30 * SECOND
    clock.advance(39 * SECOND)
    assert await fleet.codes() == []
    clock.advance(SECOND)
    await fleet.the_problem(Code.DRAIN_STUCK, over)


async def test_a_pod_that_may_drain_as_long_as_it_takes_is_not_stuck(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    await fleet.start()
    lease = await fleet.start("other")
    await enqueue_one(storage, queue="other")
    await claim_one(storage, lease, queue="other")
    await fleet.tell(EventKind.POD_DRAINING, "", lease.host_id)
    await storage.procs.set_draining(lease)
    clock.advance(HOUR)
    assert await fleet.codes() == []


async def test_nobody_leads(storage: Storage, fleet: Fleet, clock: ManualClock) -> None:
    await fleet.start()
    leader = await storage.cron.leader()
    assert leader is not None
    clock.advance(MINUTE)
    resigned = clock.now()
    await storage.cron.resign(leader.host_id, leader.term)
    clock.advance(14 * SECOND)
    assert await fleet.codes() == []
    clock.advance(SECOND)
    await fleet.the_problem(Code.NO_LEADER, resigned)


async def test_nobody_leads_after_the_lease_of_the_last_one_ran_out(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start()
    leader = await storage.cron.leader()
    assert leader is not None
    await storage.cron.resign(leader.host_id, leader.term)
    await storage.cron.lead(lease.host_id, MINUTE)
    ran_out = clock.now() + MINUTE
    clock.advance(2 * MINUTE)
    await fleet.the_problem(Code.NO_LEADER, ran_out)


async def test_nobody_leads_where_no_pod_is(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start()
    await fleet.stop(lease)
    clock.advance(48 * HOUR)
    assert await fleet.codes() == []


async def test_a_schedule_that_an_error_disabled(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    await fleet.start()
    await storage.cron.put_schedule(a_spec(name="nightly"), clock.now())
    [schedule] = await storage.cron.schedules()
    clock.advance(SECOND)
    error = "payload: is no object"
    firing = Firing(name="nightly", version=schedule.version, jobs=(), next_at=None, error=error)
    assert await storage.cron.fire([firing]) == [True]
    await fleet.tell(EventKind.SCHEDULE_DISABLED, f"nightly: {error}")
    disabled = clock.now()
    clock.advance(HOUR)
    found = await fleet.the_problem(Code.SCHEDULE_BROKEN, disabled)
    assert error in found.why


async def test_a_schedule_that_did_not_fire(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    await fleet.start()
    due = clock.now() + HOUR
    await storage.cron.put_schedule(a_spec(name="nightly"), due)
    await storage.cron.put_schedule(a_spec(name="paused"), due)
    await storage.cron.pause_schedule("paused", True, None)
    clock.advance(HOUR + 59 * SECOND)
    assert await fleet.codes() == []
    clock.advance(SECOND)
    found = await fleet.the_problem(Code.SCHEDULE_LATE, due)
    assert found.about == "nightly"


async def test_a_pod_that_hears_no_wake_ups(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start()
    heard = [True, False, True, False, False]
    begun = clock.now()
    for listening in heard:
        at = clock.now()
        await storage.procs.record_gauges(lease, at, PodGauges(**_gauges(listening=listening)))
        clock.advance(A_MINUTE)
    await fleet.the_problem(Code.POLLING_ONLY, begun + 3 * A_MINUTE)


async def test_a_pod_that_begins_to_listen_after_its_first_gauges(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    clock.advance(59 * SECOND)
    lease = await fleet.start()
    await storage.procs.record_gauges(lease, clock.now(), PodGauges(**_gauges(listening=False)))
    clock.advance(A_MINUTE + 2 * SECOND)
    assert await fleet.codes() == []
    await storage.procs.record_gauges(lease, clock.now(), PodGauges(**_gauges(listening=True)))
    clock.advance(A_MINUTE)
    assert await fleet.codes() == []


def _gauges(**overrides: Any) -> dict[str, Any]:
    return {**GAUGES, **overrides}


async def test_a_clock_that_is_off(storage: Storage, fleet: Fleet, clock: ManualClock) -> None:
    lease = await fleet.start()
    begun = clock.now()
    for skew in (3000.0, 100.0, -2500.0):
        gauges = PodGauges(**_gauges(clock_skew_ms=skew))
        await storage.procs.record_gauges(lease, clock.now(), gauges)
        clock.advance(A_MINUTE)
    found = await fleet.the_problem(Code.CLOCK_SKEW, begun + 2 * A_MINUTE)
    assert "2 s behind the store" in found.evidence
    clock.advance(-SECOND)
    assert await fleet.codes() == []
    await storage.procs.record_gauges(lease, clock.now(), PodGauges(**_gauges(clock_skew_ms=1999)))
    clock.advance(A_MINUTE)
    assert await fleet.codes() == []


async def test_an_event_loop_that_stands_still(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start()
    blocked = clock.now()
    gauges = PodGauges(**_gauges(blocked_since=blocked, blocked_in="shop.pay"))
    await storage.procs.record_gauges(lease, clock.now(), gauges)
    clock.advance(4 * SECOND)
    assert await fleet.codes() == []
    clock.advance(SECOND)
    found = await fleet.the_problem(Code.LOOP_BLOCKED, blocked)
    assert "in shop.pay without giving the loop back" in found.why
    await storage.procs.record_gauges(lease, clock.now(), PodGauges(**_gauges()))
    assert await fleet.codes() == []


async def test_seven_calls_are_enough_however_much_is_wrong(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    names = [f"q{number}" for number in range(30)]
    lease = await fleet.start(*names)
    gauges = PodGauges(**_gauges(listening=False, clock_skew_ms=5000))
    await storage.procs.record_gauges(lease, clock.now(), gauges)
    await storage.config.set_rate_limit("api", RateLimit(1, 3600.0))
    for name in names:
        await storage.config.set_queue(name, QueueChange(objective="95% within 1s", max_workers=9))
        parent = await enqueue_one(storage, queue=name)
        await enqueue_one(storage, queue=name, after=(After(parent, on_failure="hold"),))
        assert await finish(storage, await claim_one(storage, lease, queue=name), dead())
        await enqueue_one(storage, queue=name, kind="new.kind")
        await storage.jobs.requeue(JobFilter(queues=(name,), statuses=(JobStatus.DEAD,)))
        claimed = held(await claim_one(storage, lease, queue=name), f"worker-{name}")
        await storage.jobs.heartbeat(lease, [claimed], 24 * HOUR)
        await storage.jobs.cancel(JobFilter(ids=(claimed.claim.job_id,)))
    clock.advance(HOUR)
    faults = Faults()

    found = await problems(faulty(storage, faults))

    assert {Code.POLLING_ONLY, Code.CLOCK_SKEW, Code.CANCEL_IGNORED} <= {
        each.code for each in found
    }
    # Two views have a call named look.
    assert faults.calls["look"] == 2
    assert faults.calls["gauges"] == 1
    assert faults.calls.total() == 7


async def test_a_fleet_that_works(storage: Storage, fleet: Fleet, clock: ManualClock) -> None:
    lease = await fleet.start(slots=1)
    for _ in range(30):
        await enqueue_one(storage)
        clock.advance(timedelta(seconds=20))
        await storage.jobs.heartbeat(lease, [], 24 * HOUR)
        await storage.cron.lead(lease.host_id, 24 * HOUR)
        assert await fleet.codes() == []
    assert (await storage.jobs.counts())[QUEUE].due == 30
