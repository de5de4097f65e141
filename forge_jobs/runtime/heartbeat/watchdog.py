"""Notice that the event loop of the handlers is blocked."""

import asyncio
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from msgspec import structs

from forge_jobs.clock import to_us
from forge_jobs.errors import StorageError
from forge_jobs.model.processes import PodGauges, PodLease
from forge_jobs.reports import Stack, reporter
from forge_jobs.runtime.shared.latencies import minute_start
from forge_jobs.storage.protocols import Storage

logger = reporter(__name__)


class Watchdog:
    """Pings an event loop from another thread and reports a missing answer.

    ``check`` belongs to the watching thread. Only time in which the watcher itself was running
    counts: a machine that slept, or a process that was stopped, has not blocked its loop.

    :param loop: the loop that is watched. The watchdog is made on the thread of the loop
    :param blocked_after: report once, with the stack of the loop's thread
    :param hung_after: :meth:`check` says that the process is beyond help
    :param tick: how often ``check`` is meant to be called
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        blocked_after: timedelta,
        hung_after: timedelta,
        tick: timedelta,
    ) -> None:
        self._loop = loop
        self._thread_id = threading.get_ident()
        self._blocked_after = blocked_after.total_seconds()
        self._hung_after = hung_after.total_seconds()
        self._longest_step = 3 * tick.total_seconds()
        self._answered = True
        self._last_check: float | None = None
        self._silent_for = 0.0
        self._reported = False
        self.blocked_count = 0
        """How often the loop was found blocked."""
        self.last_gauges: Callable[[], PodGauges | None] = lambda: None
        """Returns what the pod measured last."""
        self._has_told = False
        self.lag = 0.0
        """Seconds the newest ping has waited, or took to be answered."""

    @property
    def is_blocked(self) -> bool:
        """Return whether the loop has not answered for ``blocked_after``."""
        return self._reported

    def check(self, elapsed: float) -> bool:
        """Ping, or judge the ping in flight. True: the loop counts as hung."""
        step = 0.0
        if self._last_check is not None:
            step = min(elapsed - self._last_check, self._longest_step)
        self._last_check = elapsed
        if self._answered:
            self._came_back()
            self._ping()
            return False
        self._silent_for += step
        self.lag = self._silent_for
        if self._silent_for >= self._blocked_after and not self._reported:
            self._report()
        return self._silent_for >= self._hung_after

    def _ping(self) -> None:
        self._answered = False
        self._silent_for = 0.0
        try:
            self._loop.call_soon_threadsafe(self._answer)
        except RuntimeError:
            # The loop is closed, so nothing is left to block.
            self._answered = True

    def _answer(self) -> None:
        self._answered = True

    def _came_back(self) -> None:
        self.lag = self._silent_for
        if self._reported:
            self._reported = False
            logger.warning("the event loop runs again after %.1f s", self._silent_for)

    def _report(self) -> None:
        self._reported = True
        self.blocked_count += 1
        logger.error(
            "the event loop has been blocked for %.1f s: a handler computes or waits without "
            "awaiting. Make it a plain def, or move the work to a thread. Stack of the loop:\n%s",
            self._silent_for,
            self.stack(),
        )

    async def tell(self, storage: Storage, lease: PodLease, now: datetime) -> None:
        """Tell the store that the loop is blocked, once, and once that the loop turns again.

        By the gauges of the pod, which the blocked loop cannot record. A store that refuses is
        asked again at the next beat.

        :param now: the store's time
        """
        if self._reported == self._has_told:
            return
        blocked, lag = self._reported, self.lag
        gauges = structs.replace(
            self.last_gauges() or PodGauges(),
            loop_lag_ms=lag * 1000,
            blocked_since=now - timedelta(seconds=lag) if blocked else None,
            blocked_in=self._place() if blocked else "",
        )
        with suppress(StorageError):
            await storage.procs.record_gauges(lease, minute_start(to_us(now)), gauges)
            self._has_told = blocked

    def _place(self) -> str:
        """Return the innermost function of the loop's thread that is not of Python's library."""
        frame = sys._current_frames().get(self._thread_id)
        while frame is not None:
            module = str(frame.f_globals.get("__name__", ""))
            if module.partition(".")[0] not in sys.stdlib_module_names:
                return f"{module}.{frame.f_code.co_qualname}"
            frame = frame.f_back
        return ""

    def stack(self) -> Stack:
        """Return where the loop's thread is now."""
        return Stack(sys._current_frames().get(self._thread_id))
