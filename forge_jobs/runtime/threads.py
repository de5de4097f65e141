"""A thread of one worker, for handlers that are plain functions."""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

_Call = tuple[Callable[[], Any], contextvars.Context, asyncio.Future["Outcome"]]
Outcome = tuple[Any, BaseException | None]
"""What a call returned, or what it raised."""


class HandlerThread:
    """Runs one call after another.

    A daemon: a call that never returns must not keep the process from ending. One thread per
    worker, so that as many run as there are slots.
    """

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

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


def _deliver(future: "asyncio.Future[Outcome]", outcome: Outcome) -> None:
    if not future.done():
        future.set_result(outcome)
