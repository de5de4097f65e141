"""The heartbeat: its own thread, its own event loop, its own connection to the store."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from datetime import timedelta

from forge_jobs import stop_points
from forge_jobs.clock import Clock
from forge_jobs.config import RuntimeSettings
from forge_jobs.engine_threads import EngineThread
from forge_jobs.errors import Unavailable
from forge_jobs.model.processes import PodLease
from forge_jobs.outages import Outage, Pauses
from forge_jobs.policy.bursts import Bursts
from forge_jobs.policy.liveness import Fence
from forge_jobs.reports import AT_EXIT, defer_reports, flush_reports, reporter
from forge_jobs.runtime.heartbeat.declaration import Declaration
from forge_jobs.runtime.heartbeat.problems import BeatProblems
from forge_jobs.runtime.heartbeat.receiver import BeatListener
from forge_jobs.runtime.heartbeat.requests import PodRequests, RequestDesk
from forge_jobs.runtime.heartbeat.watchdog import Watchdog
from forge_jobs.runtime.shared.failure_texts import health_text_of
from forge_jobs.runtime.shared.final_log import log_and_flush
from forge_jobs.runtime.shared.handing_back import release_all
from forge_jobs.runtime.shared.held_claims import HeldClaims
from forge_jobs.runtime.shared.service import Wakeup
from forge_jobs.storage.protocols import Storage

logger = reporter(__name__)

HUNG_EXIT_CODE = 70
_LONGEST_TICK = 0.25
_BETWEEN_BEATS = 0.2
_BEATS_AT_ONCE = 3
"""Beats that a start needs: for wake-ups before it, for its pod, and for its slots."""
_FIRST_RETRY, _LONGEST_RETRY = 0.05, 1.0
_BEAT_BLOCKED = 1.0
_BEATS_MISSED = 3
"""Intervals after which a beat is overdue."""


class Heartbeat(BeatProblems):
    """Beats for the pod and all claims, whatever the event loop of the handlers does.

    The heartbeat goes on while the pod drains and stops last. When the loop of the handlers hangs,
    the beats end, so that other pods get the jobs, and ``exit_process`` is called.

    Nothing here waits for the log, whose handlers may block: see :mod:`forge_jobs.reports`.

    :param storage: an independent bundle is opened from this one
    :param declaration: not declared while the pod drains: a later deploy may have declared
    :param exit_process: ends the process at once with the given code
    """

    _fenced_alone: frozenset[str] = frozenset()

    def __init__(
        self,
        *,
        storage: Storage,
        declaration: Declaration,
        lease: PodLease,
        held: HeldClaims,
        fence: Fence,
        listener: BeatListener,
        requests: PodRequests,
        settings: RuntimeSettings,
        clock: Clock,
        exit_process: Callable[[int], None] = os._exit,
    ) -> None:
        self.lease = lease
        self.silent: frozenset[str] = frozenset()
        """Queues for which the last beat renewed nothing."""
        self.draining = False
        self.has_left = False
        """The thread itself has unregistered the pod."""
        self._storage = storage
        self._declaration = declaration
        self._held = held
        self._fence = fence
        self._listener = listener
        self._settings = settings
        self._clock = clock
        self._exit_process = exit_process
        self._home = asyncio.get_running_loop()
        beat_seconds = settings.heartbeat_interval.total_seconds()
        self._tick = min(_LONGEST_TICK, beat_seconds / 2, settings.fence_margin.total_seconds() / 4)
        allowed = (settings.lease - settings.fence_margin).total_seconds()
        self._overdue_after = max(_BEATS_MISSED * beat_seconds, allowed / 2)
        self._floor = min(_BETWEEN_BEATS, beat_seconds / 2)
        self.watchdog = Watchdog(
            self._home,
            blocked_after=settings.blocked_after,
            hung_after=settings.hung_after,
            tick=timedelta(seconds=self._tick),
        )
        self._desk = RequestDesk(requests, self._home, self.wake, clock)
        self._is_quiet = False
        """The store knows that the pod is quiet."""
        self._outage = Outage()
        self._is_fenced = False
        self._turned_at = clock.elapsed()
        self._handed_back: threading.Event | None = None
        self._beats_end = False
        self._ended = asyncio.Event()
        self._wakeup: Wakeup | None = None
        self._watch_wakeup: Wakeup | None = None
        self._thread = EngineThread(
            "forge-jobs-heartbeat",
            self._main,
            on_end=lambda: self._call_home(self._ended.set),
            longest_pause=_LONGEST_RETRY,
        )

    def start(self) -> None:
        """Start the thread. The first beat goes out at once."""
        self._thread.start()

    def silent_for(self) -> float:
        """Return the seconds since the thread last turned, whatever the store did meanwhile."""
        return max(0.0, self._clock.elapsed() - self._turned_at)

    def wake(self) -> None:
        """Beat now rather than at the next turn. Callable from any thread."""
        self._wake(self._wakeup)

    def leave(self) -> None:
        """Let the thread stop the handlers, end the beats and give up the slots.

        For a pod that cannot work any more and has no other task that could do this.
        """
        if self._leave_by is None:
            self._leave_by = self._clock.elapsed() + self._settings.lease.total_seconds()
            self._is_fenced = True
            self._fence.close()
            self._call_home(self._listener.fenced)
            self.wake()

    def hand_back(self, at_most: float) -> bool:
        """Let the thread give all claims and slots to other pods. The process must end then.

        For a process whose time is over and whose event loop does not turn. Callable from any
        thread. False: not done within ``at_most`` seconds.
        """
        self._is_fenced = True
        self._fence.close()
        self._handed_back = done = threading.Event()
        self.wake()
        return done.wait(at_most)

    async def stop(self, at_most: timedelta) -> bool:
        """Send no further beat. False: the thread has not ended within ``at_most``.

        A beat in flight is not cancelled: with a store that does not answer, the thread ends later,
        by the store's own time limit.
        """
        if self._leave_by is None:
            self._stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(at_most.total_seconds()):
                await self._ended.wait()
                return True
        self._stop()
        return False

    # -- in the thread -----------------------------------------------------------------------

    def _wake(self, wakeup: Wakeup | None) -> None:
        if wakeup is not None:
            self._thread.call_soon(wakeup.wake)

    def _stop(self) -> None:
        self._stopping = True
        self._thread.over()
        self._wake(self._wakeup)
        self._wake(self._watch_wakeup)

    def _call_home(self, callback: Callable[..., None], *args: object) -> None:
        # The loop of the handlers may be closed already.
        with contextlib.suppress(RuntimeError):
            self._home.call_soon_threadsafe(callback, *args)

    async def _main(self) -> None:
        self._wakeup, self._watch_wakeup = Wakeup(), Wakeup()
        self._beats_end = False
        watch = asyncio.ensure_future(self._keep_watch())
        try:
            storage = await self._open()
            if storage is not None:
                try:
                    await self._beat_on(storage)
                    self._desk.begin()
                    await self._desk.serve(storage.procs, self.lease, is_asked=False)
                    await self._depart(storage)
                finally:
                    if self._stopping or self.has_left:
                        self._call_home(self._ended.set)
                    await storage.aclose()
        finally:
            self._beats_end = True
            self._watch_wakeup.wake()
            await watch

    async def _open(self) -> Storage | None:
        while not self._stopping and not self._is_late():
            if self._home.is_closed():
                self.leave()
            try:
                storage = await self._storage.reopen()
                defer_reports()  # the driver may have made loggers
                return storage
            except Exception as error:  # a pod without beats is of no use
                await self._pause(self._failed(error))
        return None

    async def _beat_on(self, storage: Storage) -> None:
        interval = self._settings.heartbeat_interval.total_seconds()
        pace = Bursts(self._floor, _BEATS_AT_ONCE)
        while not (self._stopping or self._is_leaving or self._home.is_closed()):
            sent_at = self._clock.elapsed()
            try:
                await self._beat(storage, sent_at)
            except Exception as error:  # the pod's claims depend on the next beat
                await self._pause(self._failed(error))
                continue
            took = self._clock.elapsed() - sent_at
            # A blocked loop passes no wake-up on, and requests of operators come all the same.
            pause = min(interval, _BEAT_BLOCKED) if self.watchdog.is_blocked else interval
            if not await self._pause(max(pause - took, self._floor)) or self._stopping:
                continue
            # A wake-up sends a beat at once, but in the long run fewer beats than wake-ups.
            await Wakeup().wait(timedelta(seconds=pace.delay(self._clock.elapsed())))

    async def _depart(self, storage: Storage) -> None:
        """Give the slots up when no other task can. The claims go stale."""
        if self._handed_back is not None:
            await storage.procs.unregister(self.lease)
            # Last: other pods may run these jobs from now on.
            left = [each.claim for each in self._held.snapshot()]
            await release_all(storage.jobs, left, lambda: self._pause(self._tick))
            self._handed_back.set()
            return
        if self._stopping:
            return
        self.leave()
        await self._handlers_end()
        while not self._stopping and not self._is_late():
            try:
                await storage.procs.unregister(self.lease)
            except Exception as error:  # other pods wait for these slots
                await self._pause(self._failed(error))
            else:
                self.has_left = True
                return

    async def _handlers_end(self) -> None:
        """Wait until no handler runs in a slot that is about to be given up, for the margin."""
        until = self._clock.elapsed() + self._settings.fence_margin.total_seconds()
        while self._held.any_started() and not self._home.is_closed():
            if self._stopping or self._clock.elapsed() >= until:
                return
            await self._pause(self._tick)

    @property
    def _is_leaving(self) -> bool:
        return self._leave_by is not None or self._handed_back is not None

    def _is_late(self) -> bool:
        """Return whether other pods have found out by themselves that the pod is gone."""
        return self._leave_by is not None and self._clock.elapsed() >= self._leave_by

    async def _beat(self, storage: Storage, sent_at: float) -> None:
        if stop_points.ARMED:
            await stop_points.reach("beat:before")
        self._desk.begin()
        beat = await storage.jobs.heartbeat(self.lease, self._held.snapshot(), self._settings.lease)
        if stop_points.ARMED:
            await stop_points.reach("beat:committed")
        self.lease_held = beat.lease_held
        self.silent = beat.silent
        if beat.lease_held:
            self._fence.renewed(sent_at, beat.silent)
            self._is_fenced = False
            self.last_success = sent_at
        self._call_home(self._listener.beat_arrived, beat, sent_at)
        if not (beat.lease_held or self._stopping or self._is_leaving):
            await self._register_again(storage)
        elif beat.admitted and not self.draining:
            await self._declaration.declare(storage)  # the store may never have had them
        elif self.draining and not self._stopping:
            # At each beat: until the store knows, no other pod gets the slots of this pod.
            await storage.procs.set_draining(self.lease)
        elif self.quiet or self._is_quiet:
            await self._tell_quiet(storage)
        if await self._declaration.correct(storage, self.lease, beat, self._settings.lease):
            self.wake()
        await self.watchdog.tell(storage, self.lease, beat.now)
        # Last: an answer says what the store knows already.
        await self._desk.serve(storage.procs, self.lease, is_asked=beat.requests)
        if self._outage.is_over():
            logger.info("heartbeat: the store answers again")
        self.failures = 0
        self._trouble = ""

    async def _tell_quiet(self, storage: Storage) -> None:
        if self.quiet:
            self._is_quiet = True
            await storage.procs.set_draining(self.lease, quiet=True)
        else:
            await storage.procs.end_draining(self.lease)
            self._is_quiet = self.quiet

    async def _register_again(self, storage: Storage) -> None:
        logger.warning(
            "the lease of this pod had run out: registering again, without slots. Its jobs may run "
            "on other pods. No beat had reached the store for too long, or the process was frozen"
        )
        if not self.draining:
            await self._declaration.declare(storage)
        asked_at = self._clock.elapsed()
        lease = await storage.procs.register(self._declaration.pod, self._settings.lease)
        self.lease = lease
        self.lease_held = True
        self._fence.renewed(asked_at, self.silent)
        self._is_fenced = False
        self._call_home(self._listener.registered_again, lease, self._clock.elapsed())
        if self.draining or self.quiet:
            await storage.procs.set_draining(lease, quiet=not self.draining)
        self.wake()

    async def _pause(self, seconds: float) -> bool:
        """Return True when a wake-up cut the pause short."""
        assert self._wakeup is not None
        return await self._wakeup.wait(timedelta(seconds=seconds))

    def _failed(self, error: Exception) -> float:
        """Report a failed beat, and return how long to wait for the next try."""
        self.failures += 1
        self._trouble = health_text_of(error, "the heartbeat")
        if self._outage.is_new(self._trouble):
            logger.warning(
                "heartbeat: %s: %s; handlers are stopped in %s unless the store answers",
                type(error).__name__,
                error,
                self._fence.remaining(self._clock.elapsed()),
                exc_info=None if isinstance(error, Unavailable) else error,
            )
        longest = min(_LONGEST_RETRY, self._settings.heartbeat_interval.total_seconds())
        return Pauses(_FIRST_RETRY, longest).after(self.failures)

    async def _keep_watch(self) -> None:
        """Look after the fence and the other event loop, also while a beat gets no answer."""
        assert self._watch_wakeup is not None
        while not (self._stopping or self._beats_end):
            self._turned_at = self._clock.elapsed()
            try:
                self._watch(self._turned_at)
            except Exception:  # without this the handlers would never be fenced
                logger.exception("heartbeat: the watch over the event loop failed, and goes on")
            await self._watch_wakeup.wait(timedelta(seconds=self._tick))

    def _watch(self, elapsed: float) -> None:
        self._check_fence(elapsed)
        if self.watchdog.check(elapsed):
            self._give_up()

    def _check_fence(self, elapsed: float) -> None:
        overdue = self._fence.overdue(elapsed)
        if overdue - self._fenced_alone:
            self._call_home(self._listener.fenced)
        self._fenced_alone = overdue
        if self._is_fenced or not self._fence.must_stop(elapsed):
            return
        self._is_fenced = True
        logger.error(
            "no beat has reached the store for %s: handlers are stopped before their jobs are "
            "given to others",
            self._settings.lease - self._settings.fence_margin,
        )
        self._call_home(self._listener.fenced)

    def _give_up(self) -> None:
        self.is_hung = True
        self._stop()
        logger.critical(
            "the event loop has been blocked for more than %s; this pod is shutting down. "
            "Stack of the loop:\n%s",
            self._settings.hung_after,
            self.watchdog.stack(),
        )
        # Should the process go on nevertheless, no handler may run without beats.
        self._fence.close()
        self._call_home(self._listener.fenced)
        # The log's handlers may have threads of their own, which have not written the line yet.
        log_and_flush(flush_reports, AT_EXIT)
        self._exit_process(HUNG_EXIT_CODE)
