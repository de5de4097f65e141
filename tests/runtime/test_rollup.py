"""Roll-ups change no sum. Latencies and gauges reach the store and survive outages."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import count

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Unavailable
from forge_jobs.model.ids import HostId, new_host_id
from forge_jobs.model.metrics import LatencySample
from forge_jobs.model.series import FlowSample
from forge_jobs.policy.percentiles import percentile
from forge_jobs.runtime.passes import gauges as gauges_module
from forge_jobs.runtime.passes.cleanup import roll_up_once
from forge_jobs.runtime.passes.depths import record_depths_once
from forge_jobs.runtime.passes.gauges import PodMeter, gauges_once
from forge_jobs.runtime.shared.latencies import FLUSH_BATCH, LatencyRecorder
from forge_jobs.storage.protocols import Storage
from tests.support.factories import DAY, QUEUE, counters, done, enqueue_one, register, run_one

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

MINUTE = timedelta(minutes=1)


async def test_folding_in_small_batches_changes_no_sum(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    leases = [await register(manual_storage, lease_for=DAY) for _ in range(3)]
    for _ in range(4):
        for lease in leases:
            await enqueue_one(manual_storage)
            await run_one(manual_storage, lease, done())
        manual_clock.advance(MINUTE)
    before = await counters(manual_storage)

    report = await roll_up_once(manual_storage.jobs, clock=manual_clock, batch=2)

    assert report.finished
    assert report.rows > 0
    assert await counters(manual_storage) == before
    assert before["succeeded"] == 12
    assert (await roll_up_once(manual_storage.jobs, clock=manual_clock)).rows == 0


async def test_a_gap_of_days_without_a_coordinator_is_made_up_for(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    lease = await register(manual_storage, lease_for=30 * DAY)
    await enqueue_one(manual_storage)
    await run_one(manual_storage, lease, done())
    manual_clock.advance(7 * DAY)

    report = await roll_up_once(manual_storage.jobs, clock=manual_clock)

    assert report.finished
    assert (await counters(manual_storage))["succeeded"] == 1


async def test_a_roll_up_ends_when_its_time_is_used_up(
    manual_storage: Storage, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count(1)

    async def full_for_long(limit: int) -> int:
        manual_clock.advance(1)
        return limit if next(calls) < 100 else 0

    monkeypatch.setattr(manual_storage.jobs, "roll_up", full_for_long)

    report = await roll_up_once(
        manual_storage.jobs, clock=manual_clock, batch=10, budget=timedelta(seconds=3)
    )

    assert (report.rows, report.finished) == (30, False)


def due(clock: ManualClock, seconds_ago: float) -> float:
    """When a job was due that ends now."""
    return clock.now().timestamp() - seconds_ago


@pytest.fixture
def recorder(manual_storage: Storage, manual_clock: ManualClock) -> LatencyRecorder:
    return LatencyRecorder(manual_storage.jobs, new_host_id(), clock=manual_clock)


async def test_durations_are_found_again_per_queue_and_minute(
    manual_storage: Storage, manual_clock: ManualClock, recorder: LatencyRecorder
) -> None:
    start = manual_clock.now()
    recorder.record(QUEUE, 0.1, due(manual_clock, 1.0))
    recorder.record(QUEUE, 0.1, due(manual_clock, 1.0))
    recorder.record("other", 5, due(manual_clock, 5))
    manual_clock.advance(MINUTE)
    recorder.record(QUEUE, 10, due(manual_clock, 20))

    assert await recorder.flush_once() == 3

    first, second = await manual_storage.jobs.metrics(QUEUE, start, start + DAY)
    assert (first.minute, second.minute) == (start, start + MINUTE)
    assert sum(first.processing.counts.values()) == 2
    assert percentile(first.processing, 0.5) == pytest.approx(0.1, rel=0.05)
    assert percentile(first.total, 0.5) == pytest.approx(1.0, rel=0.05)
    assert percentile(second.total, 0.5) == pytest.approx(20, rel=0.05)


async def test_durations_survive_an_outage_of_the_store_and_count_once(
    manual_storage: Storage,
    manual_clock: ManualClock,
    recorder: LatencyRecorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = manual_clock.now()

    async def down(host_id: HostId, samples: Sequence[LatencySample]) -> None:
        # A job that ends while the flush is under way.
        recorder.record(QUEUE, 0.1, due(manual_clock, 1.0))
        raise Unavailable("down")

    recorder.record(QUEUE, 0.1, due(manual_clock, 1.0))
    with monkeypatch.context() as patch:
        patch.setattr(manual_storage.jobs, "add_latencies", down)
        for _ in range(2):
            with pytest.raises(Unavailable):
                await recorder.flush_once()

    await recorder.flush_once()
    assert await recorder.flush_once() == 0

    [bucket] = await manual_storage.jobs.metrics(QUEUE, start, start + DAY)
    assert sum(bucket.total.counts.values()) == 3


async def test_the_last_flush_beside_another_one_counts_each_run_once(
    manual_storage: Storage,
    manual_clock: ManualClock,
    recorder: LatencyRecorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As at the stop of a pod of a thousand queues, while the minute is being written."""
    start, real = manual_clock.now(), manual_storage.jobs.add_flows

    async def add_while_the_pod_stops(samples: Sequence[FlowSample]) -> Sequence[FlowSample]:
        monkeypatch.setattr(manual_storage.jobs, "add_flows", real)
        await recorder.flush_once(all_minutes=True)
        return await real(samples)

    names = [f"tenant-{number:03}" for number in range(FLUSH_BATCH + 2)]
    for name in names:
        recorder.record(name, 0.1, due(manual_clock, 1.0), kind="works", ended="succeeded")
    manual_clock.advance(MINUTE)
    monkeypatch.setattr(manual_storage.jobs, "add_flows", add_while_the_pod_stops)
    await recorder.flush_once()
    for name in (names[0], names[-1]):
        [step] = await manual_storage.jobs.series(start, start + DAY, queue=name, kind="works")
        assert dict(step.counts) == {"succeeded": 1}


async def test_series_get_a_minute_of_a_kind_once_it_is_over(
    manual_storage: Storage, manual_clock: ManualClock, recorder: LatencyRecorder
) -> None:
    start = manual_clock.now()

    async def counted(kind: str) -> list[dict[str, int]]:
        steps = await manual_storage.jobs.series(start, start + DAY, queue=QUEUE, kind=kind)
        return [dict(step.counts) for step in steps]

    recorder.record(QUEUE, 0.1, due(manual_clock, 1.0), kind="a", ended="succeeded")
    recorder.record(QUEUE, 0.1, due(manual_clock, 1.0), kind="b", ended="failed")
    assert await recorder.flush_once() == 1
    recorder.record(QUEUE, 0.2, due(manual_clock, 1.0), kind="a", ended="succeeded")
    assert await recorder.flush_once() == 1
    assert await counted("a") == []
    manual_clock.advance(MINUTE)
    recorder.record(QUEUE, 0.2, due(manual_clock, 1.0), kind="a", ended="succeeded")
    await recorder.flush_once()
    assert (await counted("a"), await counted("b")) == ([{"succeeded": 2}], [{"failed": 1}])
    await recorder.flush_once(all_minutes=True)
    assert await counted("a") == [{"succeeded": 2}, {"succeeded": 1}]
    steps = await manual_storage.jobs.series(start, start + MINUTE, queue=QUEUE, kind="b")
    assert percentile(steps[0].delay, 0.5) == pytest.approx(0.9, rel=0.05)
    assert percentile(steps[0].processing, 0.5) == pytest.approx(0.1, rel=0.05)


async def test_series_are_kept_while_the_store_is_away(
    manual_storage: Storage,
    manual_clock: ManualClock,
    recorder: LatencyRecorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def down(samples: Sequence[FlowSample]) -> None:
        raise Unavailable("down")

    start = manual_clock.now()
    recorder.record(QUEUE, 0.1, due(manual_clock, 1.0), kind="a", ended="succeeded")
    with monkeypatch.context() as patch:
        patch.setattr(manual_storage.jobs, "add_flows", down)
        for _ in range(2):
            with pytest.raises(Unavailable):
                await recorder.flush_once(all_minutes=True)
    await recorder.flush_once(all_minutes=True)
    await recorder.flush_once(all_minutes=True)
    [step] = await manual_storage.jobs.series(start, start + DAY, queue=QUEUE, kind="a")
    assert dict(step.counts) == {"succeeded": 1}


async def test_the_pod_that_leads_records_what_waits(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    start = manual_clock.now()
    await register(manual_storage)
    for _ in range(3):
        await enqueue_one(manual_storage)
    manual_clock.advance(timedelta(seconds=5))
    assert await record_depths_once(manual_storage.jobs, manual_storage.procs) == 1
    for queue in (QUEUE, ""):
        [step] = await manual_storage.jobs.series(start, start + DAY, queue=queue)
        assert step.depth is not None
        assert (step.depth.due, step.depth.oldest_due_for) == (3, timedelta(seconds=5))


async def test_what_is_kept_during_an_outage_is_bounded(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    recorder = LatencyRecorder(manual_storage.jobs, new_host_id(), clock=manual_clock, capacity=5)
    for _ in range(20):
        recorder.record(QUEUE, 0.1, due(manual_clock, 1.0))
        manual_clock.advance(MINUTE)

    assert len(recorder) == 5
    assert await recorder.flush_once() == 5
    buckets = await manual_storage.jobs.metrics(QUEUE, manual_clock.now() - DAY, manual_clock.now())
    assert [bucket.minute for bucket in buckets] == [
        manual_clock.now() - number * MINUTE for number in (5, 4, 3, 2, 1)
    ]


async def test_every_pod_records_its_own_gauges(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    lease = await register(manual_storage)
    meter = PodMeter(clock=manual_clock)
    meter.observe_store_call(0.002)
    meter.observe_loop_lag(0.5)
    manual_clock.advance(30)

    measured = await gauges_once(manual_storage, lease, meter, running=3)

    [minute] = await manual_storage.procs.gauges(
        manual_clock.now() - MINUTE, manual_clock.now() + MINUTE
    )
    assert minute.host_id == lease.host_id
    assert minute.minute == manual_clock.now() - timedelta(seconds=30)
    assert minute.gauges == measured
    assert measured.running == 3
    assert measured.memory_bytes > 1_000_000
    assert measured.disk_free_bytes > 0
    assert measured.store_latency_ms == pytest.approx(1)
    assert measured.loop_lag_ms == pytest.approx(250)
    # Both are one clock here.
    assert measured.clock_skew_ms == pytest.approx(0, abs=1)


def test_readings_that_fail_are_zero_and_fail_nothing(
    manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter = PodMeter(clock=manual_clock, disk_path="/no/such/place")

    class Broken:
        def cpu_seconds(self) -> float:
            raise PermissionError

        def memory_bytes(self) -> int:
            raise PermissionError

    monkeypatch.setattr(meter, "_process", Broken())

    measured = meter.measure(running=0)

    assert (measured.cpu_percent, measured.memory_bytes, measured.disk_free_bytes) == (0, 0, 0)


def test_without_psutil_the_readings_come_from_the_system(
    manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise ImportError

    monkeypatch.setattr(gauges_module, "_Psutil", missing)
    meter = PodMeter(clock=manual_clock)

    assert meter.measure(running=0).memory_bytes > 1_000_000


def test_processor_time_is_a_share_of_the_time_that_passed(manual_clock: ManualClock) -> None:
    meter = PodMeter(clock=manual_clock)
    spent = {"cpu": 10.0}

    class Process:
        def cpu_seconds(self) -> float:
            return spent["cpu"]

        def memory_bytes(self) -> int:
            return 1

    meter._process = Process()
    meter.measure(running=0)
    spent["cpu"] += 3
    manual_clock.advance(6)

    assert meter.measure(running=0).cpu_percent == pytest.approx(50)
