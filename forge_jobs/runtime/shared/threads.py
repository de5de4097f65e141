"""A thread of one worker, for handlers that are plain functions."""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

from forge_jobs.outages import Pauses
from forge_jobs.reports import reporter

logger = reporter(__name__)

_PAUSES = Pauses(0.5, 30.0, jitter=0)
_FORGOTTEN_AFTER = 120.0

_Call = tuple[Callable[[], Any], contextvars.Context, "ThreadEnd"]
Outcome = tuple[Any, BaseException | None]
"""The value that a call returned, and the exception that a call raised."""


class NoThread(RuntimeError):
    """The system starts no further thread."""


def start_thread(name: str, function: Callable[[], None]) -> int:
    """Start a daemon: a call that never returns must not keep the process from ending.

    :returns: the ident of the thread
    :raises NoThread: the system refuses
    """
    try:
        thread = threading.Thread(target=function, name=name, daemon=True)
        thread.start()
    except (RuntimeError, MemoryError) as error:
        raise NoThread(str(error)) from error
    return thread.ident or 0


class ThreadEnd(asyncio.Future[Outcome]):
    """The outcome of a call. A cancellation waits for the thread, which cannot be stopped.

    ``asyncio.run`` cancels all tasks at its end and waits for them. After a pod has stopped without
    this thread, :meth:`leave` lets ``asyncio.run`` go on.

    :param thread_id: the ident of the thread, 0 for what is no thread
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, thread_id: int = 0) -> None:
        super().__init__(loop=loop)
        self.thread_id = thread_id
        self._is_left = False
        self._was_cancelled = False

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel only after :meth:`leave`."""
        if self._is_left:
            return super().cancel(msg)
        self._was_cancelled = True
        return False

    def leave(self) -> None:
        """Let the cancellations through, the earlier ones included."""
        self._is_left = True
        if self._was_cancelled:
            super().cancel()


class HandlerThread:
    """Runs one call after another.

    :raises NoThread: the system starts no further thread
    """

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._last: ThreadEnd | None = None
        self._ident = start_thread(name, self._run)

    @property
    def is_free(self) -> bool:
        """Return whether the last call has ended, as far as the event loop knows."""
        return self._last is None or (self._last.done() and not self._last.cancelled())

    def call(self, function: Callable[[], Any], context: contextvars.Context) -> ThreadEnd:
        """Start ``function``. The future gives the outcome and never raises.

        An exception is passed as a value because a future cannot carry every exception.
        """
        future = ThreadEnd(asyncio.get_running_loop(), self._ident)
        self._last = future
        self._calls.put((function, context, future))
        return future

    def close(self) -> None:
        """End after the calls given so far. Does not wait."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            function, context, future = call
            try:
                outcome: Outcome = (context.run(function), None)
            except BaseException as error:  # a handler may raise anything
                outcome = (None, error)
            try:
                future.get_loop().call_soon_threadsafe(_deliver, future, outcome)
            except RuntimeError:
                return  # the loop is closed and nothing waits any more
            del call, function, context, future, outcome


class ThreadSupply:
    """The threads of a pod's handlers, lent for one run each: as many as have run at once.

    After the system has refused a thread, the existing threads serve all queues in turn. Another
    start is tried after a pause, which doubles after each further refusal.

    :param changed: called with whether a handler that needs a thread may start, each time that
        changes
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, changed: Callable[[bool], None]) -> None:
        self.problem = ""
        """Why no further thread starts, else ""."""
        self._loop = loop
        self._changed = changed
        self._idle: list[HandlerThread] = []
        self._started = 0
        self._refusals = 0
        self._refused_at = float("-inf")

    def room(self, wanted: int) -> int:
        """Return how many of ``wanted`` jobs may be claimed: no more than idle threads, if any.

        Without an idle thread only jobs that need no thread are claimed, as many as wanted.
        """
        return min(wanted, len(self._idle)) if self.problem and self._idle else wanted

    def take(self) -> HandlerThread:
        """Return an idle thread for one run, or start one.

        :raises NoThread: no thread is idle, and the system starts no further one
        """
        if self._idle:
            thread = self._idle.pop()
            if self.problem and not self._idle:
                self._changed(False)
            return thread
        try:
            thread = HandlerThread(f"forge-jobs-handler-{self._started}")
        except NoThread as error:
            self._refused(error)
            raise
        self._started += 1
        return thread

    def give_back(self, thread: HandlerThread) -> None:
        """Keep a thread for the next run. A thread whose handler goes on ends after it."""
        if not thread.is_free:
            thread.close()
            return
        self._idle.append(thread)
        if self.problem and len(self._idle) == 1:
            self._changed(True)

    def dismiss(self) -> None:
        """End an idle thread, if there is one, because a worker has been retired."""
        if self._idle:
            self._idle.pop(0).close()
            if self.problem and not self._idle:
                self._changed(False)

    def _refused(self, error: NoThread) -> None:
        now = self._loop.time()
        if self.problem:
            return
        if now - self._refused_at > _FORGOTTEN_AFTER:
            self._refusals = 0
        self._wait(error)
        self._changed(False)

    def _wait(self, error: NoThread) -> None:
        self._refusals += 1
        pause = _PAUSES.after(self._refusals)
        self._refused_at = self._loop.time()
        self.problem = f"the system starts no further thread: {error}"
        logger.warning(
            "%s. Jobs of `def` handlers without a thread are given back, and no more are claimed "
            "than threads are free, for %.1f s at least. Raise the limit of threads (ulimit -u, "
            "pids.max of the container), or lower max_workers",
            self.problem,
            pause,
        )
        self._loop.call_later(pause, self._try_again)

    def _try_again(self) -> None:
        try:
            start_thread("forge-jobs-handler-trial", _do_nothing)
        except NoThread as error:
            self._wait(error)
        else:
            logger.info("the system starts threads again: jobs of `def` handlers are claimed")
            self.problem = ""
            self._changed(True)


def _do_nothing() -> None:
    pass


def _deliver(future: "asyncio.Future[Outcome]", outcome: Outcome) -> None:
    if not future.done():
        future.set_result(outcome)
