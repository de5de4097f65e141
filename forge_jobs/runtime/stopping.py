"""Taking a pod down: drain, interrupt, store, leave. Bounded, also when the store is gone.

The grace is for handlers. The store has what they leave of it, and at least three seconds after
the last of them while it answers: when it is merely slow it takes their ends then, and no job runs
again for want of a moment. One that is away when they end has a moment. Ends go first, then
events, the leader lease and the pod itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any

from msgspec import Struct

from forge_jobs import stop_points
from forge_jobs.errors import StorageError
from forge_jobs.model.events import EventKind
from forge_jobs.model.ids import JobId
from forge_jobs.reports import reporter
from forge_jobs.runtime.coordinator import resign
from forge_jobs.runtime.pod import RunningPod
from forge_jobs.runtime.run import Run, StopReason

logger = reporter(__name__)

_TO_END = 0.3
"""Seconds that handlers have to react to their cancellation at the end of the grace."""

_TO_STORE, _TO_STORE_AWAY = 3.0, 0.3
"""Seconds that a store has after the handlers, at least: one that answers, one that does not."""

_TO_LEAVE, _MOST_TO_LEAVE = 0.15, 5.0
"""Seconds for each of the last steps: when that time is over, and at most."""

_FOR_LOOPS = 0.3

_LOOK_EVERY = 0.1


class StopReport(Struct, frozen=True, kw_only=True):
    """How a pod stopped.

    :param interrupted: jobs whose handlers were stopped and whose attempts were handed back
    :param abandoned: jobs whose handlers have not ended: threads, and coroutines that swallow
        their cancellation
    :param unstored: claims whose end the store has not taken; they are revived as crashed
    :param left: the pod is unregistered
    """

    interrupted: tuple[JobId, ...] = ()
    abandoned: tuple[JobId, ...] = ()
    unstored: tuple[JobId, ...] = ()
    left: bool = True

    @property
    def is_clean(self) -> bool:
        """Nothing of the pod is left in the store."""
        return self.left and not self.unstored


class PodStopper:
    """Drains and stops one pod, once, however often it is asked.

    :param release_abandoned: give the claims of handlers that do not end to others, for a
        process that ends right after; else they are kept and beaten for until they end
    """

    def __init__(self, pod: RunningPod, *, release_abandoned: bool) -> None:
        self._pod = pod
        self._release_abandoned = release_abandoned
        self._hurried = False
        self._interrupted: list[JobId] = []
        self._drained: asyncio.Task[None] | None = None
        self._grace_until = float("inf")
        self._store_until = float("-inf")
        self._stopped: asyncio.Task[StopReport] | None = None
        self._background: set[asyncio.Future[Any]] = set()

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def hurry(self) -> None:
        """End the grace now."""
        self._hurried = True
        self._pod.services.run_ended.ring()

    async def drain(self, timeout: timedelta) -> bool:
        """Start nothing more; interrupt what still runs after ``timeout``. True: all has ended.

        A later, shorter ``timeout`` shortens the grace of an earlier call.
        """
        self._grace_until = min(self._grace_until, self._loop.time() + timeout.total_seconds())
        self._pod.services.run_ended.ring()
        if self._drained is None:
            self._drained = self._loop.create_task(self._drain(), name="forge-jobs drain")
        await asyncio.shield(self._drained)
        return not any(True for _ in self._pod.runs())

    async def stop(self, timeout: timedelta) -> StopReport:
        """Drain, then leave the fleet.

        At most a second longer than ``timeout``, or four with a store that is slow or has just
        gone silent.
        """
        self._grace_until = min(self._grace_until, self._loop.time() + timeout.total_seconds())
        self._pod.services.run_ended.ring()
        if self._stopped is None:
            self._stopped = self._loop.create_task(self._stop(), name="forge-jobs stop")
        return await asyncio.shield(self._stopped)

    # -- drain -------------------------------------------------------------------------------

    async def _drain(self) -> None:
        pod = self._pod
        pod.draining = True
        pod.heartbeat.draining = True
        for supervisor in pod.supervisors.values():
            supervisor.drain()
        self._spawn(_quietly(pod.plan.storage.procs.set_draining(pod.services.lease)))
        await self._runs_end(lambda: 0.0 if self._hurried else self._grace_until)
        interrupted = [run for run in pod.runs() if run.stop_reason is None]
        for supervisor in pod.supervisors.values():
            supervisor.stop_runs(StopReason.SHUTDOWN)
        until = self._loop.time() + _TO_END
        await self._runs_end(lambda: until)
        self._interrupted += [run.job.claim.job_id for run in interrupted if run.ended]

    async def _runs_end(self, until: Callable[[], float]) -> None:
        """Wait until no handler runs, or the time is over."""
        while any(True for _ in self._pod.runs()):
            left = until() - self._loop.time()
            if left <= 0:
                return
            await self._pod.services.run_ended.wait(timedelta(seconds=min(left, 3600.0)))

    # -- stop --------------------------------------------------------------------------------

    async def _stop(self) -> StopReport:
        await self.drain(timedelta(days=1))
        pod = self._pod
        stuck = list(pod.runs())
        if stuck:
            self._report(stuck)
        if stuck and not self._release_abandoned:
            self._spawn(self._linger())
            return self._made(stuck, [], left=False)
        for run in stuck:
            run.stop(StopReason.LOST)
            pod.supervisors[run.job.claim.queue].lane.release([run.job.claim])
        if stop_points.ARMED:
            await stop_points.reach("stop:drained")
        unstored, left = await self._leave()
        return self._made(stuck, unstored, left=left)

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
        """Store what is to be stored and unregister; what could not be stored, and whether the
        store knows that the pod is gone."""
        pod = self._pod
        pod.events.record(EventKind.POD_STOPPED)
        pod.services.job_log.close()
        loops_until = self._loop.time() + _FOR_LOOPS
        self._store_until = self._loop.time() + self._time_for_store()
        for loop in pod.loops.all:
            loop.stop()
        if pod.listener is not None:
            pod.listener.cancel()
        for supervisor in pod.supervisors.values():
            supervisor.lane.close()
        await self._lanes_end()
        await self._within(loops_until - self._loop.time(), pod.loop_tasks)
        unstored: list[JobId] = []
        for supervisor in pod.supervisors.values():
            supervisor.lane.give_up()
            unstored += [claim.job_id for claim in supervisor.lane.waiting_claims()]
        if unstored:
            logger.error("%d ends of claims could not be stored", len(unstored))
        last = (
            self._spawn(_quietly(pod.loops.flush())),
            self._spawn(_quietly(pod.client.aclose())),
            self._spawn(_quietly(resign(pod.plan.storage.cron, pod.host_id, pod.loops.memory))),
        )
        # A beat after the pod has left would bring it back. Nothing else is waited for.
        await pod.heartbeat.stop(timedelta(seconds=self._to_leave()))
        lease = pod.heartbeat.lease
        if stop_points.ARMED:
            await stop_points.reach("stop:leaving")
        leaving = self._spawn(_quietly(pod.plan.storage.procs.unregister(lease)))
        await self._within(self._to_leave(), [leaving, *last])
        left = leaving.done() and bool(leaving.result())
        return unstored, left

    def _time_for_store(self) -> float:
        """Seconds that it has at least, by what beats and lanes know of it."""
        pod, beat = self._pod, self._pod.heartbeat
        silence = 0.0
        if beat.last_success is not None:
            interval = pod.plan.settings.heartbeat_interval.total_seconds()
            silence = pod.plan.clock.elapsed() - beat.last_success - interval
        failures = beat.failures or any(each.lane.failures for each in pod.supervisors.values())
        return _TO_STORE_AWAY if failures or silence > _TO_STORE else _TO_STORE

    def _left(self) -> float:
        """Seconds that the store still has."""
        grace_until = float("-inf") if self._hurried else self._grace_until
        return max(self._store_until, grace_until) - self._loop.time()

    def _to_leave(self) -> float:
        """Seconds for one of the last steps."""
        return max(_TO_LEAVE, min(self._left(), _MOST_TO_LEAVE))

    async def _lanes_end(self) -> None:
        """Wait until all ends are stored, while the store has time for it."""
        while not all(lane.done() for lane in self._pod.lanes):
            left = self._left()
            if left <= 0:
                return
            await self._within(min(left, _LOOK_EVERY), self._pod.lanes)

    def _spawn(self, work: Awaitable[Any]) -> "asyncio.Future[Any]":
        """Run a store call that nobody cancels, and that nobody may have to wait for."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _within(self, seconds: float, tasks: Iterable["asyncio.Future[Any]"]) -> None:
        pending = [task for task in tasks if not task.done()]
        if pending:
            await asyncio.wait(pending, timeout=max(seconds, 0.0))

    def _report(self, stuck: Iterable[Run]) -> None:
        for run in stuck:
            logger.error(
                "job %s (%s) has not ended: %s; %s",
                run.job.claim.job_id,
                run.job.kind,
                "its thread cannot be stopped" if run.in_thread else "it swallows CancelledError",
                "its claim is released" if self._release_abandoned else "its claim is kept",
                extra={"job_id": run.job.claim.job_id, "kind": run.job.kind},
            )


async def _quietly(call: Awaitable[Any]) -> bool:
    """Whether ``call`` went well; what it raised is logged, because the way out goes on."""
    try:
        await call
    except StorageError as error:
        logger.warning("while stopping: %s: %s", type(error).__name__, error)
        return False
    except Exception:
        logger.exception("while stopping")
        return False
    return True
