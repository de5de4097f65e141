"""The frame of every loop of the runtime: wait, make one pass, survive an exception.

The work of a loop is a public ``*_once`` function elsewhere. This module only repeats the function.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta

from msgspec import Struct

from forge_jobs.clock import Clock
from forge_jobs.errors import StorageClosed, Unavailable
from forge_jobs.outages import Outage, Pauses
from forge_jobs.reports import reporter

logger = reporter(__name__)

_FIRST_PAUSE = 0.1
_SHORTEST_CAP, _LONGEST_CAP = 1.0, 30.0


class Wakeup:
    """A wake-up for one waiter. While nothing waits, wake-ups are remembered, as one.

    Call :meth:`wake` on the event loop of the waiter. From elsewhere use
    ``loop.call_soon_threadsafe(wakeup.wake)``.
    """

    def __init__(self) -> None:
        self._is_awake = False
        self._waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Let the current wait, or else the next one, return at once."""
        self._is_awake = True
        if self._waiter is not None:
            _wake(self._waiter)

    async def wait(self, at_most: timedelta | None = None) -> bool:
        """Wait for a wake-up and forget it. False: no wake-up came within ``at_most``.

        None waits without end. A wait of zero or less looks without waiting.
        """
        if not self._is_awake and (at_most is None or at_most > timedelta(0)):
            await self._wait(None if at_most is None else at_most.total_seconds())
        woken, self._is_awake = self._is_awake, False
        return woken

    async def _wait(self, seconds: float | None) -> None:
        # By hand: asyncio.timeout would cancel the waiting task, and an UncancellableTask goes on.
        loop = asyncio.get_running_loop()
        self._waiter = waiter = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, _wake, waiter)
        try:
            await waiter
        finally:
            if self._waiter is waiter:  # else a successor waits already
                self._waiter = None
            if timer is not None:
                timer.cancel()


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


class LoopHealth(Struct, frozen=True, kw_only=True):
    """The state of one loop.

    :param last_success_ago: seconds since a pass last ended well. None: no pass did
    :param failures: failed passes in a row, zero after a good pass
    :param failures_total: failed passes since the start
    :param last_error: type and text of the newest failure while ``failures`` is above zero
    """

    name: str
    last_success_ago: float | None
    failures: int
    failures_total: int
    last_error: str


class PeriodicLoop:
    """Repeats ``run_once`` until :meth:`stop`.

    A pass returns how long until the next pass, None for ``interval``. A wake-up shortens that
    pause. A failed pass is counted and repeated after a growing, jittered pause. Each distinct
    cause is logged once until a pass succeeds.

    A pass is never cancelled, because a store call may be under way: after a stop no further pass
    begins. Store calls have time limits of their own, so a pass ends.

    :param run_once: one pass. Any exception is survived, except those that end the process
    :param timeout: a pass that takes longer counts as failed and is reported. The loop waits for it
    """

    def __init__(
        self,
        name: str,
        run_once: Callable[[], Awaitable[timedelta | None]],
        interval: timedelta,
        *,
        clock: Clock,
        timeout: timedelta = timedelta(seconds=30),
        rng: random.Random | None = None,
    ) -> None:
        self.name = name
        self.wakeup = Wakeup()
        self.failures = 0
        self.failures_total = 0
        self.last_success: float | None = None
        """``Clock.elapsed`` at the end of the last good pass."""
        self._run_once = run_once
        self._interval = interval
        self._clock = clock
        self._timeout = timeout
        self._patience = timeout.total_seconds()
        self._rng = rng or random.Random()
        longest = min(_LONGEST_CAP, max(_SHORTEST_CAP, interval.total_seconds()))
        self._pauses = Pauses(_FIRST_PAUSE, longest)
        self._stopping = False
        self._last_error = ""
        self._outage = Outage()
        self._expected_by = clock.elapsed() + interval.total_seconds() + self._patience
        self._pass: asyncio.Task[timedelta | None] | None = None

    async def run(self) -> None:
        """Make pass after pass until :meth:`stop`. A cancellation lets a pass in flight end."""
        while not self._stopping:
            pause = await self._pass_once()
            if self._stopping:
                break
            await self.wakeup.wait(pause)

    def stop(self) -> None:
        """Begin no further pass. :meth:`run` returns when the pass in flight has ended."""
        self._stopping = True
        self.wakeup.wake()

    @property
    def is_overdue(self) -> bool:
        """Return whether no pass has ended well when the next was due, plus the time limit."""
        return not self._stopping and self._clock.elapsed() > self._expected_by

    def health(self) -> LoopHealth:
        """Return the state of the loop."""
        last = self.last_success
        return LoopHealth(
            name=self.name,
            last_success_ago=None if last is None else self._clock.elapsed() - last,
            failures=self.failures,
            failures_total=self.failures_total,
            last_error=self._last_error if self.failures else "",
        )

    async def _pass_once(self) -> timedelta:
        self._pass = asyncio.ensure_future(self._call())
        try:
            done, _ = await asyncio.wait({self._pass}, timeout=self._timeout.total_seconds())
            if not done:
                self._failed(
                    TimeoutError(f"a pass took longer than {self._timeout} and was broken off")
                )
                await asyncio.wait({self._pass})
            pause = self._pass.result()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._pass.cancelled() or (task is not None and task.cancelling()):
                raise
            return self._failed(RuntimeError("a pass was cancelled from inside"))
        except StorageClosed:
            raise  # no further pass can succeed
        except Exception as error:
            return self._failed(error)
        pause = self._interval if pause is None else pause
        self._succeeded(pause)
        return pause

    async def _call(self) -> timedelta | None:
        return await self._run_once()

    def _succeeded(self, pause: timedelta) -> None:
        if self._outage.is_over():
            logger.info(
                "loop %s works again after %d failed passes",
                self.name,
                self.failures,
                extra={"loop": self.name},
            )
        self.failures = 0
        self.last_success = self._clock.elapsed()
        self._expected_by = self.last_success + pause.total_seconds() + self._patience

    def _failed(self, error: BaseException) -> timedelta:
        """Count and report a failure, and return how long to pause."""
        self.failures += 1
        self.failures_total += 1
        self._last_error = f"{type(error).__name__}: {error}"
        cause = f"{type(error).__qualname__}:{str(error)[:200]}"
        if self._outage.is_new(cause):
            # An outage is one line. Any other error is a defect and needs its traceback.
            logger.warning(
                "loop %s: a pass failed and will be repeated: %s",
                self.name,
                self._last_error,
                exc_info=None if isinstance(error, Unavailable) else error,
                extra={"loop": self.name, "failures": self.failures},
            )
        return timedelta(seconds=self._pauses.after(self.failures, self._rng))
