"""A pod from start to stop, whatever comes in between."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from datetime import timedelta
from types import TracebackType
from typing import Any

from forge_jobs.reports import reporter
from forge_jobs.runtime.pod.beginning import start_pod
from forge_jobs.runtime.pod.handle import QueueHandle
from forge_jobs.runtime.pod.signals import StopRequest
from forge_jobs.runtime.pod.startup import RuntimePlan
from forge_jobs.runtime.pod.stop_report import StopReport
from forge_jobs.runtime.pod.stopping import PodStopper
from forge_jobs.runtime.shared.uncancellable import UncancellableTask, wait_to_its_end

logger = reporter(__name__)

_LOOK_EVERY = timedelta(milliseconds=100)


class Starting:
    """A start that has not happened yet: await the object, or enter it.

    :param exit_with_stuck: a stop with handlers that cannot be stopped ends the process
    """

    def __init__(self, plan: RuntimePlan, *, exit_with_stuck: bool) -> None:
        self._plan = plan
        self.exit_with_stuck = exit_with_stuck
        self._handle: QueueHandle | None = None
        self._stopper: PodStopper | None = None
        self._hurried = False

    def __await__(self) -> Generator[Any, None, QueueHandle]:
        return self.open().__await__()

    async def open(self) -> QueueHandle:
        """Start the pod at the first call."""
        if self._handle is None:
            pod = await start_pod(self._plan)
            end_process = self._plan.exit_process if self.exit_with_stuck else None
            self._stopper = PodStopper(pod, end_process=end_process)
            self._handle = QueueHandle(pod, self._stopper)
            if self._hurried:
                self._handle.hurry()
        return self._handle

    @property
    def has_begun(self) -> bool:
        """Return whether there is a pod."""
        return self._handle is not None

    def hurry(self) -> None:
        """End the grace, also of a stop that has not begun."""
        self._hurried = True
        if self._handle is not None:
            self._handle.hurry()

    async def stop(self, *, end_process: Callable[[int], None] | None = None) -> StopReport | None:
        """Stop the pod, if one was started. A cancellation does not cut the stop short.

        :param end_process: see :class:`PodStopper`
        """
        if self._stopper is None:
            return None
        return await self._stopper.stop(
            self._plan.settings.grace, end_process=end_process, shielded=True
        )

    async def __aenter__(self) -> QueueHandle:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()


async def run_until(
    request: StopRequest,
    starting: Starting,
    end_process: Callable[[int], None],
    is_done: Callable[[], Awaitable[bool]] | None = None,
    started: Callable[[QueueHandle], None] | None = None,
) -> int:
    """Start a pod and stop it on request, when ``is_done``, or when something fails.

    When something fails, and handlers are left that cannot be stopped, the process goes on unless
    ``starting`` says otherwise: the caller may be a part of a program that can do without.

    :param end_process: see :class:`PodStopper`
    :param started: called with the handle of the pod
    :returns: the exit code of the process, 1 when the pod has stopped by itself
    """
    request.on_hurry(starting.hurry)
    start = asyncio.ensure_future(starting.open())
    try:
        if not await _begun(start, request):
            return 0
        start.result().tell_when_lost(request.drain)
        start.result().tell_when_asked_to_stop(request.drain)
        if started is not None:
            started(start.result())
        while not request.is_asked and not (is_done and await is_done()):
            await request.wait(None if is_done is None else _LOOK_EVERY)
    except BaseException as error:
        if starting.exit_with_stuck and starting.has_begun:
            _log_cause(error)
        down = _take_down(
            start, starting, (lambda _: end_process(1)) if starting.exit_with_stuck else None
        )
        await wait_to_its_end(
            UncancellableTask(down),
            starting.hurry,
            shielded=True,
        )
        raise
    report = await starting.stop(end_process=end_process)
    if start.result().lost_because:
        return 1
    return 0 if report is None else report.exit_code


async def _begun(start: "asyncio.Future[QueueHandle]", request: StopRequest) -> bool:
    """Wait for the start. False: a stop was asked for before."""
    asked = asyncio.ensure_future(request.wait())
    waited_for: set[asyncio.Future[Any]] = {asked, start}
    try:
        await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
    finally:
        asked.cancel()
    if not start.done():
        start.cancel()
        await asyncio.wait({start})
        if start.cancelled():
            return False
    start.result()
    return True


async def _take_down(
    start: "asyncio.Future[QueueHandle]",
    starting: Starting,
    end_process: Callable[[int], None] | None,
) -> None:
    """Stop the pod that ``start`` has made or will have made."""
    start.cancel()
    await asyncio.wait({start})
    await starting.stop(end_process=end_process)


def _log_cause(error: BaseException) -> None:
    """Log the cause before the stop: after its last call other pods may have the jobs."""
    if isinstance(error, asyncio.CancelledError):
        logger.error("the pod stops, because the program cancelled the task that ran it")
    else:
        name = type(error).__name__
        logger.error("the pod stops, because running it failed with %s", name, exc_info=error)
