"""Obstacles of a pod that the heartbeat knows of."""

from collections.abc import Iterator

from forge_jobs.engine_threads import EngineThread
from forge_jobs.runtime.heartbeat.watchdog import Watchdog


class BeatProblems:
    """The state of a heartbeat, and what of that keeps the pod from claiming."""

    lease_held = True
    quiet = False
    """The pod takes no new work until an operator lets the pod resume."""
    is_hung = False
    last_success: float | None = None
    """``Clock.elapsed`` before the newest beat that renewed the lease was sent."""
    failures = 0
    """Beats in a row that the store did not answer."""
    watchdog: Watchdog
    _trouble = ""
    _leave_by: float | None = None
    _stopping = False
    _thread: EngineThread
    _overdue_after: float

    def problems(self, now: float) -> Iterator[str]:
        """Yield what keeps the pod from claiming, as far as the heartbeat knows."""
        if self.quiet:
            yield "quiet: an operator has asked this pod to take no new work"
        if not self.lease_held:
            yield "the lease ran out"
        if self._leave_by is not None:
            yield "the heartbeat has given the slots up"
        elif not self._thread.is_alive and not self._stopping:
            yield "the heartbeat thread has ended"
        if self.last_success is None:
            yield "no beat yet"
        elif now - self.last_success > self._overdue_after:
            yield f"no beat has been answered for {now - self.last_success:.0f} s"
        if self.failures:
            yield self._trouble
        if self.watchdog.is_blocked:
            yield "the event loop is blocked"
        if self.is_hung:
            yield "the event loop was blocked for too long: this pod is shutting down"
