"""The end of a worker process, no later than promised."""

import asyncio
import math
import os
import queue
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from msgspec import Struct

from forge_jobs.clock import SystemClock
from forge_jobs.reports import reporter
from forge_jobs.runtime.shared.final_log import log_and_flush

logger = reporter(__name__)

BEYOND_GRACE = 4.0
"""Seconds that a stop takes beyond the grace at the longest: with a store that is slow, or has just
gone silent."""

_AFTER_STOP, _AFTER_GRACE, _LEAST = 2.0, 0.5, 0.3
"""Seconds for what is left when the pod has stopped, exit hooks of the program's code above all:
after the stop, after the end of the grace, and at least."""

_TO_TURN, _TO_HAND_BACK = 0.4, 0.4
"""Seconds of the second after the grace. An event loop that does not turn in that time is blocked.
The hand-back of the jobs waits that long for other programs."""

_elapsed = SystemClock().elapsed


class _Order(Struct, frozen=True):
    """End the process at ``at``, with ``code``. At ``look_at`` already if the loop is blocked."""

    at: float
    code: int
    look_at: float = math.inf


class LastExit:
    """Ends this process when the process does not end by itself.

    A thread of a handler, a task that swallows cancellation, an exit hook or a blocked event
    loop can keep a process alive without end. A thread that needs none of them watches the time.

    :param grace: of a stop
    :param patience: what handlers have when a second signal ends the grace
    :param is_armed: False: the process belongs to a program that goes on after the stop, as one
        that calls the command line's functions does, and is never ended here
    :param exit_process: ends the process at once with an exit code
    """

    def __init__(
        self,
        grace: timedelta,
        patience: timedelta,
        *,
        is_armed: bool = True,
        exit_process: Callable[[int], None] = os._exit,
    ) -> None:
        self.jobs_left: Callable[[], list[str]] = list
        """Ids of the jobs that the process still holds."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the handlers."""
        self.hand_back: Callable[[float], bool] = lambda seconds: False
        """Gives those jobs to others within so many seconds, without the loop."""
        self._grace, self._patience = grace.total_seconds(), patience.total_seconds()
        self._exit_process = exit_process
        self._grace_until: float | None = None
        # ``put`` may be called in a signal handler that interrupts another ``put``.
        self._orders: queue.SimpleQueue[_Order] = queue.SimpleQueue()
        if is_armed:
            threading.Thread(target=self._run, name="forge-jobs-last-exit", daemon=True).start()

    def stop_asked(self, level: int) -> None:
        """Note that a stop was asked for. Called in a signal handler, or by any thread.

        :param level: 1 grants the grace, from the first call on. More grant the patience
        """
        if level == 1 and self._grace_until is not None:
            return
        until = _elapsed() + (self._grace if level == 1 else self._patience)
        if self._grace_until is None or until < self._grace_until:
            self._grace_until = until
        self._orders.put(_Order(until + BEYOND_GRACE, 1, look_at=until))

    def stopped(self, code: int) -> None:
        """Note that the pod has stopped. The rest of the process has a moment, in the grace if
        possible."""
        now = _elapsed()
        left = _AFTER_STOP
        if self._grace_until is not None:
            left = min(left, self._grace_until + _AFTER_GRACE - now)
        self._orders.put(_Order(now + max(left, _LEAST), code))

    def _run(self) -> None:
        order = self._orders.get()
        while (left := min(order.at, order.look_at) - _elapsed()) > 0:
            try:
                newer = self._orders.get(timeout=left)
            except queue.Empty:
                if order.at > order.look_at and self._loop_turns():
                    order = _Order(order.at, order.code)
                continue
            order = _Order(min(order.at, newer.at), newer.code, newer.look_at)
        jobs, code = self.jobs_left(), order.code
        if order.look_at < order.at:
            # Said before: from the moment that others have the jobs, nothing may run here.
            log_and_flush(partial(self._tell_blocked, jobs))
            code = 0 if self.hand_back(_TO_HAND_BACK) else 1
        else:
            log_and_flush(partial(self._tell, jobs))
        self._exit_process(code)

    def _loop_turns(self) -> bool:
        turned = threading.Event()
        if self.loop is not None:
            try:
                self.loop.call_soon_threadsafe(turned.set)
            except RuntimeError:  # closed, so the loop does not hold up the process
                return True
        return turned.wait(_TO_TURN)

    def _tell_blocked(self, jobs: list[str]) -> None:
        logger.error(
            "the process ends now, because its event loop is blocked; jobs in progress, given back "
            "to others, or revived as crashed where the store does not take them: %s",
            ", ".join(jobs) or "none",
        )

    def _tell(self, jobs: list[str]) -> None:
        threads = [
            each.name
            for each in threading.enumerate()
            if not each.daemon and each is not threading.main_thread()
        ]
        logger.error(
            "the process ends now, because something in it has not ended: threads %s; "
            "jobs in progress, revived as crashed: %s",
            ", ".join(threads) or "none, so the event loop or an exit hook is blocked",
            ", ".join(jobs) or "none",
        )
