"""The long-lived tasks of a pod, and what follows when one of them ends.

No task group: a group that cancels all tasks when one raises would cut their store calls in half,
and so would a scope that a cancellation from outside goes through. A task that raises is started
again. A cancellation or a closed storage comes from the program and ends the pod: in good order
while the event loop turns, else by the heartbeat's thread.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from typing import Any

from forge_jobs.clock import Clock
from forge_jobs.errors import StorageClosed
from forge_jobs.outages import Pauses
from forge_jobs.reports import reporter

logger = reporter(__name__)

_PAUSES = Pauses(0.1, 30.0)
_WELL_AFTER = 60.0
"""Seconds of work after which an earlier failure no longer counts."""

_CLOSED = (
    "the storage was closed under the pod, which can neither claim nor end jobs any more (its jobs "
    "are revived once their claims are stale)"
)

_Work = Callable[[], Coroutine[Any, Any, None]]


class PodTask:
    """A long-lived task.

    :ivar over: done when the task has ended for good
    :ivar problem: why the task does not run now, empty while it does
    """

    def __init__(self, name: str, work: _Work, *, serves_the_stop: bool) -> None:
        loop = asyncio.get_running_loop()
        self.name = name
        self.over: asyncio.Future[None] = loop.create_future()
        self.problem = ""
        self.work = work
        self.serves_the_stop = serves_the_stop
        self.failures = 0
        self.began_at = 0.0
        self.is_dismissed = False
        self.task: asyncio.Task[None] | None = None


class PodTasks:
    """Owns the long-lived tasks of one pod: starts them, and notices the end of each.

    :param lost: called once, on the event loop, when the pod has lost a task for good. Called with
        the reason, and whether the storage was closed
    """

    def __init__(self, clock: Clock, lost: Callable[[str, bool], None]) -> None:
        self.lost_because = ""
        """Why the pod ends by itself, else ""."""
        self._clock = clock
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._all: list[PodTask] = []
        self._guard: _CancelGuard | None = None
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._when_lost: list[Callable[[], object]] = []

    def start(self, name: str, work: _Work, *, serves_the_stop: bool = False) -> PodTask:
        """Begin a task. A return from ``work`` ends the task in good order.

        :param serves_the_stop: the pod cannot stop in good order without this task, which is
            started again also after a cancellation from outside
        """
        pod_task = PodTask(name, work, serves_the_stop=serves_the_stop)
        self._all.append(pod_task)
        self._begin(pod_task)
        return pod_task

    def keep_guard(self) -> None:
        """Notice a cancellation of all tasks of the loop, and delay the end of the loop."""
        self._guard = _CancelGuard(self._until_gone(), self._loop, self._all_cancelled)

    def dismiss(self, pod_task: PodTask) -> None:
        """Cancel a task that is of no use any more."""
        pod_task.is_dismissed = True
        if pod_task.task is not None:
            pod_task.task.cancel()

    def forget(self, ended: Iterable[PodTask]) -> None:
        """Drop tasks that have ended in good order."""
        gone = set(ended)
        self._all = [each for each in self._all if each not in gone]

    def close(self) -> None:
        """Let go of a program that waits for all tasks of the loop: the pod has stopped."""
        if not self._gone.done():
            self._gone.set_result(None)

    def lose(self, reason: str, *, storage_closed: bool = False) -> None:
        """End the pod. Only the first reason counts."""
        if self.lost_because or self._gone.done():
            return
        self.lost_because = reason
        logger.error("%s: this pod stops", reason)
        self._lost(reason, storage_closed)
        for callback in self._when_lost:
            callback()

    def tell_when_lost(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` when the pod ends by itself."""
        if self.lost_because:
            callback()
        else:
            self._when_lost.append(callback)

    def problems(self) -> Iterator[tuple[PodTask, str]]:
        """Yield the tasks that do not run now, and why."""
        for pod_task in self._all:
            if pod_task.problem:
                yield pod_task, pod_task.problem

    async def _until_gone(self) -> None:
        await self._gone

    def _all_cancelled(self) -> None:
        self.lose("the program has cancelled all tasks of its event loop")

    def _begin(self, pod_task: PodTask) -> None:
        pod_task.problem = ""
        pod_task.began_at = self._clock.elapsed()
        pod_task.task = self._loop.create_task(pod_task.work(), name=f"forge-jobs {pod_task.name}")
        pod_task.task.add_done_callback(lambda task: self._ended(pod_task, task))

    def _ended(self, pod_task: PodTask, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._was_cancelled(pod_task)
        elif (error := task.exception()) is None:
            self._finish(pod_task, "")
        elif isinstance(error, StorageClosed):
            self._finish(pod_task, "the storage was closed")
            self.lose(_CLOSED, storage_closed=True)
        else:
            self._failed(pod_task, error)

    def _was_cancelled(self, pod_task: PodTask) -> None:
        if pod_task.is_dismissed:
            self._finish(pod_task, "")
            return
        if pod_task.serves_the_stop:
            self._begin(pod_task)
        else:
            self._finish(pod_task, "cancelled from outside")
        self.lose(f"the program has cancelled {pod_task.name}")

    def _finish(self, pod_task: PodTask, problem: str) -> None:
        pod_task.problem = problem
        if not pod_task.over.done():
            pod_task.over.set_result(None)

    def _failed(self, pod_task: PodTask, error: BaseException) -> None:
        if self._clock.elapsed() - pod_task.began_at > _WELL_AFTER:
            pod_task.failures = 0
        pod_task.failures += 1
        pod_task.problem = f"failed and is started again: {type(error).__name__}: {error}"
        logger.error(
            "task %s of this pod failed and is started again", pod_task.name, exc_info=error
        )
        pause = _PAUSES.after(pod_task.failures)
        self._loop.call_later(pause, self._begin_again, pod_task)

    def _begin_again(self, pod_task: PodTask) -> None:
        if pod_task.is_dismissed:
            self._finish(pod_task, "")
        else:
            self._begin(pod_task)


class _CancelGuard(asyncio.Task[None]):
    """Reports a cancellation, and goes on.

    ``asyncio.run`` cancels all tasks at its end and waits for them, and so for this task until the
    pod has stopped.
    """

    def __init__(
        self,
        work: Coroutine[Any, Any, None],
        loop: asyncio.AbstractEventLoop,
        cancelled: Callable[[], None],
    ) -> None:
        super().__init__(work, loop=loop, name="forge-jobs guard")
        self._cancelled_from_outside = cancelled

    def cancel(self, msg: Any | None = None) -> bool:
        """Report the cancellation and go on."""
        with suppress(Exception):
            self._cancelled_from_outside()
        return False
