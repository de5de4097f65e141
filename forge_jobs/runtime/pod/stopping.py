"""Taking a pod down: drain, interrupt, store, leave. Bounded, also when the store is gone.

The grace is for handlers and their clean-up. They are cancelled before its end, by the patience of
the settings. The store has the rest of the grace, and at least three seconds after the last handler
while it answers: a store that is merely slow takes the ends in that time, and no job runs again. A
store that is away has a moment. Ends go first, then events, the leader lease and the pod itself.
Claims of handlers that cannot be stopped come last, and only when the process ends with that call.
What handlers share is closed once the last one has ended, beside the calls of the store. Closing
has the rest of the grace, and the pod's leaving does not wait for that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from forge_jobs import stop_points
from forge_jobs.errors import StorageError
from forge_jobs.model.events import EventKind, grace_note
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Claim
from forge_jobs.reports import reporter
from forge_jobs.runtime.passes.coordinator import resign
from forge_jobs.runtime.pod.leftovers import (
    DeferredEnds,
    busy_threads,
    kill_processes,
    report_stuck,
)
from forge_jobs.runtime.pod.pod import RunningPod
from forge_jobs.runtime.pod.stop_report import StopReport
from forge_jobs.runtime.queue.run import Run, StopReason
from forge_jobs.runtime.shared.clean_texts import named
from forge_jobs.runtime.shared.final_log import flush_log
from forge_jobs.runtime.shared.handing_back import release_all
from forge_jobs.runtime.shared.service import Wakeup
from forge_jobs.runtime.shared.uncancellable import UncancellableTask, wait_to_its_end

logger = reporter(__name__)

_TO_END = 0.3
"""Seconds that handlers have at least to react to their cancellation."""

_TO_STORE, _TO_STORE_AWAY = 3.2, 0.3
"""Seconds that a store has after the handlers, at least: one that answers, one that does not."""

_TO_LEAVE, _MOST_TO_LEAVE = 0.15, 5.0
"""Seconds for each of the last steps: when the store's time is over, and at most."""

_FOR_LOOPS = 0.3

_LOOK_EVERY = 0.1

_AGAIN = 5
"""How often a call is begun at most when the program cancels it."""


class PodStopper:
    """Drains and stops one pod, once, however often the caller asks.

    :param end_process: ends the process at once with an exit code. When handlers are left that
        cannot be stopped, the last call of the stop gives their claims to other pods, and then
        calls this. None: the process goes on, keeps such claims and beats for them
    """

    def __init__(self, pod: RunningPod, *, end_process: Callable[[int], None] | None) -> None:
        self._pod = pod
        self._end_process = end_process
        self._interrupted: list[JobId] = []
        self._drained: asyncio.Task[None] | None = None
        self._patience = timedelta.max
        self._grace_until = float("inf")
        self._hurried = 0
        self._hurried_until = float("inf")
        self._handlers_ended_at = float("-inf")
        self._for_store = 0.0
        self._stopped: asyncio.Task[StopReport] | None = None
        self._background: set[asyncio.Future[Any]] = set()
        self._is_over = False
        self._deferred_ends = DeferredEnds()
        pod.when_lost = pod.when_asked = self.begin

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def hurry(self) -> None:
        """End the grace now: handlers have their patience. The next call ends the patience, too."""
        self._hurried += 1
        settings = self._pod.plan.settings
        patience = min(self._patience, settings.patience_within(settings.grace)).total_seconds()
        allowed = patience if self._hurried == 1 else _TO_END
        self._hurried_until = min(self._hurried_until, self._loop.time() + allowed)
        self._pod.services.run_ended.wake()

    async def drain(self, timeout: timedelta) -> bool:
        """Start nothing more, and interrupt handlers after ``timeout``. True: all have ended.

        A later, shorter ``timeout`` shortens the grace of an earlier call.
        """
        self._shorten_grace(timeout)
        await asyncio.shield(self._draining())
        return not any(True for _ in self._pod.runs())

    async def stop(
        self,
        timeout: timedelta,
        *,
        end_process: Callable[[int], None] | None = None,
        shielded: bool = False,
    ) -> StopReport:
        """Drain, then leave the fleet.

        Takes at most a second longer than ``timeout``, or four with a store that is slow or has
        just gone silent. Cancelling the caller hurries the stop and does not end it.

        :param end_process: replaces the ``end_process`` of the stopper
        :param shielded: see :func:`wait_to_its_end`
        """
        self._end_process = end_process or self._end_process
        self._shorten_grace(timeout)
        return await wait_to_its_end(self._begun(), self.hurry, shielded=shielded)

    def begin(self) -> None:
        """Begin to stop, with the grace of the settings, without waiting."""
        self._shorten_grace(self._pod.plan.settings.grace)
        self._begun()

    def _begun(self) -> asyncio.Task[StopReport]:
        if self._stopped is None:
            self._stopped = UncancellableTask(self._stop(), name="forge-jobs stop")
            self._stopped.add_done_callback(self._pod.stop_ended)
        return self._stopped

    def _shorten_grace(self, timeout: timedelta) -> None:
        self._grace_until = min(self._grace_until, self._loop.time() + timeout.total_seconds())
        self._patience = min(self._patience, self._pod.plan.settings.patience_within(timeout))
        self._pod.services.run_ended.wake()

    # -- drain -------------------------------------------------------------------------------

    def _draining(self) -> asyncio.Task[None]:
        if self._drained is None:
            self._drained = UncancellableTask(self._drain(), name="forge-jobs drain")
        return self._drained

    def _start_nothing_more(self) -> None:
        self._pod.draining = True
        self._pod.heartbeat.draining = True
        self._pod.served.close()
        for queue in self._pod.queues.values():
            queue.pool.drain()

    async def _drain(self) -> None:
        pod = self._pod
        self._start_nothing_more()
        if any(True for _ in pod.runs()):
            left = self._grace_until - self._loop.time()
            detail = grace_note(left) if left != float("inf") else ""
            pod.events.record(EventKind.POD_DRAINING, detail=detail)
            # Other pods get the slots now. Should this call fail, each beat says the same.
            self._spawn(lambda: pod.plan.storage.procs.set_draining(pod.services.lease))
        await self._runs_end(self._cancel_at)
        if self._end_process is not None:
            self._deferred_ends.begin(queue.outbox for queue in pod.queues.values())
        interrupted = [run for run in pod.runs() if run.stop_reason is None]
        for queue in pod.queues.values():
            queue.pool.stop_runs(StopReason.SHUTDOWN)
        at_least = self._loop.time() + _TO_END
        await self._runs_end(lambda: max(self._handlers_until(), at_least))
        if kill_processes(pod.runs()):
            await self._runs_end(partial(float, self._loop.time() + _TO_END))
        self._interrupted += [run.job.claim.job_id for run in interrupted if run.ended]

    def _cancel_at(self) -> float:
        """Return when handlers are cancelled."""
        patience = self._patience.total_seconds()
        return float("-inf") if self._hurried else self._grace_until - patience

    def _handlers_until(self) -> float:
        """Return when handlers that were cancelled count as stuck."""
        return min(self._grace_until, self._hurried_until)

    async def _runs_end(self, until: Callable[[], float]) -> None:
        """Wait until no handler runs, or the time is over."""
        while any(True for _ in self._pod.runs()):
            left = until() - self._loop.time()
            if left <= 0:
                return
            await self._pod.services.run_ended.wait(timedelta(seconds=min(left, 3600.0)))

    # -- stop --------------------------------------------------------------------------------

    async def _stop(self) -> StopReport:
        try:
            return await self._stop_and_leave()
        finally:
            self._is_over = True

    async def _stop_and_leave(self) -> StopReport:
        # First: a claim that arrives after the queue was closed must not start a handler any more.
        self._start_nothing_more()
        if not any(True for _ in self._pod.runs()):
            # Before the queues begin to lower grants that leave with the pod anyway.
            self._close_queues()
        await self._draining()
        stuck = list(self._pod.runs())
        report_stuck(stuck, process_ends=self._end_process is not None)
        if stuck and self._end_process is None:
            self._spawn(self._linger)
            for run in stuck:
                if run.thread_end is not None:
                    run.thread_end.leave()
            return self._made(stuck, [], left=False)
        if stop_points.ARMED:
            await stop_points.reach("stop:drained")
        await self._threads_end()
        unstored, left = await self._leave()
        claims = [run.job.claim for run in stuck] + self._deferred_ends.claims()
        if self._end_process is None or not (claims or self._pod.values.stuck):
            return self._made(stuck, unstored, left=left)
        if claims:
            unstored += await self._release_at_last(claims)
        report = self._made(stuck, unstored, left=left)
        self._end_process(1 if self._pod.tasks.lost_because else report.exit_code)
        return report

    async def _threads_end(self) -> None:
        """Wait for threads of interrupted handlers while the grace lasts, then store the ends."""
        at_least = self._loop.time() + _TO_END
        while self._deferred_ends and (threads := busy_threads()):
            left = max(self._handlers_until(), at_least) - self._loop.time()
            if left <= 0:
                self._deferred_ends.report(threads)
                return
            await Wakeup().wait(timedelta(seconds=min(left, _LOOK_EVERY)))
        self._deferred_ends.let_go()

    def _made(self, stuck: Iterable[Run], unstored: list[JobId], *, left: bool) -> StopReport:
        return StopReport(
            interrupted=tuple(self._interrupted),
            abandoned=tuple(run.job.claim.job_id for run in stuck),
            unstored=tuple(unstored),
            left=left,
        )

    async def _linger(self) -> None:
        """Beat for the handlers that cannot be stopped until they end, then leave."""
        await self._runs_end(lambda: float("inf"))
        await self._leave()

    async def _leave(self) -> tuple[list[JobId], bool]:
        """Store ends and unregister. Return jobs not stored, and whether the pod has left."""
        pod = self._pod
        pod.events.record(EventKind.POD_STOPPED, detail=pod.note)
        pod.services.job_log.close()
        loops_until = self._loop.time() + _FOR_LOOPS
        self._handlers_ended_at = self._loop.time()
        closing = self._spawn(self._close_values)
        self._for_store = self._time_for_store()
        for loop in pod.loops.all:
            loop.stop()
        if pod.listener is not None:
            pod.tasks.dismiss(pod.listener)
        self._close_queues()
        # Beats are for claims. Without claims, a slow store has one call less to answer.
        beats_end = None if len(pod.services.held) else self._end_beats()
        await self._queues_end()
        unstored = self._give_up_queues()
        last = [
            self._spawn(pod.services.processes.close),
            self._spawn(lambda: self._after_loops(loops_until, pod.loops.flush)),
            self._spawn(lambda: self._after_loops(loops_until, self._resign)),
        ]
        # A beat after the pod has left would bring the pod back.
        await self._within(self._to_leave(), [beats_end or self._end_beats()])
        lease = pod.heartbeat.lease
        if stop_points.ARMED:
            await stop_points.reach("stop:leaving")
        leaving = self._spawn(lambda: pod.plan.storage.procs.unregister(lease))
        await self._within(self._to_leave(), [leaving, *last])
        # Bounded by itself. The client is closed last, because a lifespan may enqueue.
        await asyncio.wait([closing])
        await self._within(self._to_leave(), [self._spawn(pod.client.aclose)])
        return unstored, pod.heartbeat.has_left or _went_well(leaving)

    async def _close_values(self) -> None:
        """Leave what handlers share, unless a handler goes on that may use the values."""
        if not any(True for _ in self._pod.runs()):
            at_least = self._handlers_ended_at + _TO_END
            await self._pod.values.close(lambda: max(self._handlers_until(), at_least))

    def _close_queues(self) -> None:
        for queue in self._pod.queues.values():
            queue.close()

    def _end_beats(self) -> "asyncio.Task[bool]":
        beat, at_most = self._pod.heartbeat, timedelta(seconds=self._to_leave())
        return self._spawn(lambda: beat.stop(at_most))

    def _give_up_queues(self) -> list[JobId]:
        """End the loops of the queues, and return the jobs whose ends they could not store."""
        unstored: list[JobId] = []
        for queue in self._pod.queues.values():
            queue.give_up()
            unstored += [claim.job_id for claim in queue.outbox.claims()]
        if unstored:
            logger.error(
                "the store has not taken the ends of %d jobs. They will be revived as crashed: %s",
                len(unstored),
                named(unstored),
                extra={"job_ids": unstored},
            )
        return unstored

    async def _after_loops(self, until: float, call: Callable[[], Awaitable[Any]]) -> None:
        """Make ``call`` when the passes under way have ended, or at ``until``."""
        await self._within(until - self._loop.time(), self._pod.loop_tasks)
        await call()

    async def _resign(self) -> None:
        pod = self._pod
        await resign(pod.plan.storage.cron, pod.host_id, pod.loops.memory)

    async def _release_at_last(self, claims: Sequence[Claim]) -> list[JobId]:
        """Release claims although handlers go on: the process ends now. Return what is left."""
        await flush_log()
        left = list(claims)
        look = partial(Wakeup().wait, timedelta(seconds=_LOOK_EVERY))
        released = self._spawn(lambda: release_all(self._pod.services.jobs, left, look))
        await self._within(max(self._to_leave(), _TO_END), [released])
        return [claim.job_id for claim in left]

    def _time_for_store(self) -> float:
        """Return the seconds that the store has at least, by the failures of beats and queues."""
        pod, beat = self._pod, self._pod.heartbeat
        silence = 0.0
        if beat.last_success is not None:
            interval = pod.plan.settings.heartbeat_interval.total_seconds()
            silence = pod.plan.clock.elapsed() - beat.last_success - interval
        failures = beat.failures or any(each.failures for each in pod.queues.values())
        return _TO_STORE_AWAY if failures or silence > _TO_STORE else _TO_STORE

    def _left(self) -> float:
        """Return the seconds that the store still has."""
        grace_until = float("-inf") if self._hurried else self._grace_until
        return max(grace_until, self._handlers_ended_at) + self._for_store - self._loop.time()

    def _to_leave(self) -> float:
        """Return the seconds for one of the last steps."""
        return max(_TO_LEAVE, min(self._left(), _MOST_TO_LEAVE))

    async def _queues_end(self) -> None:
        """Wait until all ends are stored, while the store has time left."""
        while not all(task.done() for task in self._pod.served.tasks_over):
            left = self._left()
            if left <= 0:
                return
            await self._within(min(left, _LOOK_EVERY), self._pod.served.tasks_over)

    def _spawn(self, call: Callable[[], Awaitable[Any]]) -> "asyncio.Task[bool]":
        """Begin a call that is repeatable, and that the stop may leave behind."""
        task = self._loop.create_task(self._quietly(call))
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _quietly(self, call: Callable[[], Awaitable[Any]]) -> bool:
        """Return whether ``call`` succeeded. An error is logged, because the stop goes on."""
        for _ in range(_AGAIN):
            try:
                await call()
            except asyncio.CancelledError:
                # Cancelled with all tasks of the loop. The stop goes on, and needs this call.
                if self._is_over:
                    raise
            except StorageError as error:
                logger.warning(
                    "the store did not take a call while this pod stops; the stop goes on: %s: %s",
                    type(error).__name__,
                    error,
                )
                return False
            except Exception:
                logger.exception("a step of the stop of this pod failed; the stop goes on")
                return False
            else:
                return True
        return False

    async def _within(self, seconds: float, tasks: Iterable["asyncio.Future[Any]"]) -> None:
        pending = [task for task in tasks if not task.done()]
        if pending:
            await asyncio.wait(pending, timeout=max(seconds, 0.0))


def _went_well(task: "asyncio.Task[bool]") -> bool:
    return task.done() and not task.cancelled() and task.result()
