"""Problems of pods, the leader and schedules, read from a store."""

from datetime import timedelta
from typing import Any

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.events import EventKind
from forge_jobs.model.metrics import MINUTE as A_MINUTE
from forge_jobs.model.processes import PodGauges
from forge_jobs.model.schedules import Firing
from forge_jobs.operating.snapshots.reading import problems
from forge_jobs.policy.judgement.problems.problem import Code
from forge_jobs.storage.protocols import Storage
from tests.problems.conftest import HOUR, MINUTE, SECOND, Fleet
from tests.support.factories import QUEUE, claim_one, enqueue_one
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


def _gauges(**overrides: Any) -> dict[str, Any]:
    return {**GAUGES, **overrides}


async def test_however_many_queues_ten_calls_are_enough_where_no_job_is_odd(
    storage: Storage, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"q{number}" for number in range(30)]
    lease = await fleet.start(*names)
    gauges = PodGauges(**_gauges(listening=False))
    await storage.procs.record_gauges(lease, fleet.clock.now(), gauges)
    for name in names:
        await enqueue_one(storage, queue=name)
    calls = []

    def counted(view: str, call: str, real: Any) -> Any:
        def count(*args: object, **options: object) -> Any:
            calls.append(f"{view}.{call}")
            return real(*args, **options)

        return count

    for view in ("jobs", "procs", "config", "cron"):
        for call in dir(part := getattr(storage, view)):
            real = getattr(part, call)
            if not call.startswith("_") and callable(real):
                monkeypatch.setattr(part, call, counted(view, call, real), raising=False)

    await problems(storage)

    assert "procs.gauges" in calls
    assert len(calls) <= 10
    assert len(set(calls)) == len(calls), "the store is asked of one queue after the other"


async def test_a_fleet_that_works(storage: Storage, fleet: Fleet, clock: ManualClock) -> None:
    lease = await fleet.start(slots=1)
    for _ in range(30):
        await enqueue_one(storage)
        clock.advance(timedelta(seconds=20))
        await storage.jobs.heartbeat(lease, [], 24 * HOUR)
        await storage.cron.lead(lease.host_id, 24 * HOUR)
        assert await fleet.codes() == []
    assert (await storage.jobs.counts())[QUEUE].due == 30
