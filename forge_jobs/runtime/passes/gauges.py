"""Measurements of a pod: processor, memory, disk, store round trips, loop lag."""

import os
import shutil
import threading
from pathlib import Path
from typing import Protocol

import anyio.lowlevel

from forge_jobs.clock import Clock, SystemClock, to_us
from forge_jobs.model.processes import OutboxGauge, PodGauges, PodLease
from forge_jobs.runtime.shared.latencies import minute_start
from forge_jobs.runtime.shared.rates.meter import RateMeter
from forge_jobs.runtime.shared.store_calls import CallMeter
from forge_jobs.storage.protocols import Storage, StoreHealth

_ALL_WELL = StoreHealth()


class _Mean:
    """The mean of the values added since :meth:`take`. Callable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sum = 0.0
        self._count = 0

    def add(self, value: float) -> None:
        with self._lock:
            self._sum += value
            self._count += 1

    def take(self) -> float | None:
        with self._lock:
            total, count = self._sum, self._count
            self._sum, self._count = 0.0, 0
        return total / count if count else None


class Process(Protocol):
    """Readings of this process."""

    def cpu_seconds(self) -> float:
        """Return the processor time used since the process began."""
        ...

    def memory_bytes(self) -> int:
        """Return the resident memory, 0 where the system does not say."""
        ...


class _ProcFiles:
    """Readings without psutil: from the interpreter, and from /proc where there is one."""

    def cpu_seconds(self) -> float:
        times = os.times()
        return times.user + times.system

    def memory_bytes(self) -> int:
        try:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):
            return 0


class _Psutil:
    """Readings by psutil, which knows more systems."""

    def __init__(self) -> None:
        import psutil

        self._process = psutil.Process()

    def cpu_seconds(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def memory_bytes(self) -> int:
        return int(self._process.memory_info().rss)


def this_process() -> Process:
    """Return readings of this process, by psutil where there is one."""
    try:
        return _Psutil()
    except Exception:  # psutil is optional, and may be there but not work in this container
        return _ProcFiles()


class PodMeter:
    """Collects one pod's measurements between two passes of :func:`gauges_once`.

    The two ``observe`` methods may be called from any thread.

    :param disk_path: a path on the disk whose free space is measured
    :param calls: counts the calls of the store
    :param rates: counts tokens of rate limits
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        disk_path: str | Path = ".",
        calls: CallMeter | None = None,
        rates: RateMeter | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self.overruns = 0
        """Handlers of the pod that went on past their timeout, since the start."""
        self.kept: tuple[str, ...] = ()
        """References that retention has met. See :class:`PodGauges`."""
        self.clock_skew = 0.0
        """Seconds by which the wall clock is ahead of the store's."""
        self.outboxes: tuple[OutboxGauge, ...] = ()
        """Outboxes that the pod relays."""
        self.last: PodGauges | None = None
        """The newest gauges."""
        self.calls = calls or CallMeter()
        self._rates = rates or RateMeter(self.clock)
        self._disk_path = disk_path
        self._process = this_process()
        self._store_latency = _Mean()
        self._loop_lag = _Mean()
        self._measured_at = self.clock.elapsed()
        self._cpu_seconds = self._process.cpu_seconds()

    def observe_store_call(self, seconds: float) -> None:
        """Add the seconds of one round trip to the store."""
        self._store_latency.add(seconds)

    def observe_loop_lag(self, seconds: float) -> None:
        """Add how much later than asked the event loop came back to a task."""
        self._loop_lag.add(seconds)

    def measure(self, running: int, store: StoreHealth = _ALL_WELL) -> PodGauges:
        """Return the gauges since the last call. A reading that fails is zero, and none raises."""
        self.last = PodGauges(
            cpu_percent=self._cpu_percent(),
            memory_bytes=self._memory_bytes(),
            disk_free_bytes=self._disk_free_bytes(),
            store_latency_ms=(self._store_latency.take() or 0.0) * 1000,
            loop_lag_ms=(self._loop_lag.take() or 0.0) * 1000,
            running=running,
            listening=store.wakes,
            silences=store.silences,
            unreplicated=store.unreplicated,
            overruns=self.overruns,
            kept=self.kept,
            clock_skew_ms=self.clock_skew * 1000,
            pool_size=store.pool_size,
            pool_in_use=store.pool_in_use,
            pool_waits=store.pool_waits,
            calls=self.calls.take(),
            outboxes=self.outboxes,
            rates=self._rates.last_minute(),
        )
        return self.last

    def _cpu_percent(self) -> float:
        now = self.clock.elapsed()
        try:
            used = self._process.cpu_seconds()
        except Exception:  # a reading never fails the pass
            return 0.0
        passed = now - self._measured_at
        busy = used - self._cpu_seconds
        self._measured_at, self._cpu_seconds = now, used
        return max(0.0, 100 * busy / passed) if passed > 0 else 0.0

    def _memory_bytes(self) -> int:
        try:
            return self._process.memory_bytes()
        except Exception:  # a reading never fails the pass
            return 0

    def _disk_free_bytes(self) -> int:
        try:
            return shutil.disk_usage(self._disk_path).free
        except OSError:
            return 0


async def gauges_once(
    storage: Storage, lease: PodLease, meter: PodMeter, *, running: int
) -> PodGauges:
    """Measure, and record the gauges for the present minute of the store.

    :param running: handlers that run on this pod now
    :raises StorageError: the store did not take the gauges
    """
    # Before the pass's own call, which gives a connection back.
    health = storage.health()
    before = meter.clock.elapsed()
    await anyio.lowlevel.checkpoint()
    asked = meter.clock.elapsed()
    meter.observe_loop_lag(asked - before)
    now = await storage.cron.now()
    took = meter.clock.elapsed() - asked
    meter.observe_store_call(took)
    # The store read its clock about half way between question and answer.
    meter.clock_skew = (meter.clock.time_us() - to_us(now)) / 1_000_000 - took / 2
    gauges = meter.measure(running, health)
    await storage.procs.record_gauges(lease, minute_start(to_us(now)), gauges)
    return gauges
