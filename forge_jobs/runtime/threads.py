"""A thread of one worker, for handlers that are plain functions."""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

from forge_jobs.reports import reporter

logger = reporter(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_FORGOTTEN_AFTER = 120.0

_Call = tuple[Callable[[], Any], contextvars.Context, asyncio.Future["Outcome"]]
Outcome = tuple[Any, BaseException | None]
"""What a call returned, or what it raised."""


class NoThread(RuntimeError):
    """The system starts no further thread."""


def start_thread(name: str, function: Callable[[], None]) -> None:
    """Start a daemon: a call that never returns must not keep the process from ending.

    :raises NoThread: the system refuses
    """
    try:
        threading.Thread(target=function, name=name, daemon=True).start()
    except (RuntimeError, MemoryError) as error:
        raise NoThread(str(error)) from error


class HandlerThread:
    """Runs one call after another. One thread per worker, so that as many run as there are slots.

    :raises NoThread: the system starts no further thread
    """

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        start_thread(name, self._run)

    def call(
        self, function: Callable[[], Any], context: contextvars.Context
    ) -> "asyncio.Future[Outcome]":
        """Start ``function``; the future gives its outcome and never an exception.

        An exception is passed as a value because a future cannot carry every one of them.
        """
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
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
                return  # the loop is closed, nobody waits any more
            del call, function, context, future, outcome


class ThreadSupply:
    """Whether handlers that need a thread of their own may start.

    After a refusal they wait for a pause, twice as long after each further one, and for a thread
    that starts. Jobs of such handlers are not claimed meanwhile.

    :param changed: called with whether threads are there, each time that changes
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, changed: Callable[[bool], None]) -> None:
        self.problem = ""
        """Why no such handler may start; "" while they may."""
        self._loop = loop
        self._changed = changed
        self._refusals = 0
        self._refused_at = float("-inf")

    def refused(self, error: NoThread) -> None:
        """Note that a thread did not start."""
        now = self._loop.time()
        if self.problem:
            return
        if now - self._refused_at > _FORGOTTEN_AFTER:
            self._refusals = 0
        self._wait(error)
        self._changed(False)

    def _wait(self, error: NoThread) -> None:
        pause = min(_FIRST_PAUSE * 2 ** min(self._refusals, 10), _LONGEST_PAUSE)
        self._refusals += 1
        self._refused_at = self._loop.time()
        self.problem = f"the system starts no further thread: {error}"
        logger.warning(
            "%s. Jobs of `def` handlers are given back, and none is claimed for %.1f s. Raise the "
            "limit of threads (ulimit -u, pids.max of the container), or lower max_workers",
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
