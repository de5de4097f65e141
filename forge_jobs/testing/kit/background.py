"""The event loop of the kit, on one thread of the process, and calls of it from other threads."""

import asyncio
import atexit
import contextvars
import os
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from forge_jobs.runtime.shared.threads import HandlerThread, ThreadEnd

T = TypeVar("T")

_Call = tuple[Callable[[], Any], contextvars.Context, ThreadEnd]


class BackgroundLoop:
    """An event loop on a thread, for stores that outlive the loops of tests."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="forge-jobs-testing", daemon=True)
        self._thread.start()
        atexit.register(self._stop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the loop and block the calling thread until ``work`` has ended."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def _stop(self) -> None:
        if self.process_id == os.getpid():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()


_loops: list[BackgroundLoop] = []


def background() -> BackgroundLoop:
    """Return the loop of this process, started when first needed.

    A forked child has the object and not the thread, so a child starts another.
    """
    if not _loops or _loops[-1].process_id != os.getpid():
        _loops[:] = [BackgroundLoop()]
    return _loops[-1]


class CallingThread(HandlerThread):
    """Runs ``def`` handlers on the thread that waits for :meth:`wait_for`.

    What belongs to the thread of a test, such as the connection of a transaction that is rolled
    back after the test, is then at hand in the handler.
    """

    def __init__(self) -> None:
        self._inbox: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()

    @property
    def is_free(self) -> bool:
        return True

    def call(self, function: Callable[[], Any], context: contextvars.Context) -> ThreadEnd:
        future = ThreadEnd(asyncio.get_running_loop())
        self._inbox.put((function, context, future))
        return future

    def close(self) -> None:
        """Do nothing: the thread belongs to the test."""

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the loop of the kit, and handlers here meanwhile."""
        running = asyncio.run_coroutine_threadsafe(work, background().loop)
        running.add_done_callback(lambda _: self._inbox.put(None))
        try:
            while (call := self._inbox.get()) is not None:
                _run_here(*call)
        except BaseException:
            running.cancel()
            raise
        return running.result()


def _run_here(function: Callable[[], Any], context: contextvars.Context, future: ThreadEnd) -> None:
    value, error = None, None
    try:
        value = context.run(function)
    except BaseException as raised:  # a handler may raise anything
        error = raised
    future.get_loop().call_soon_threadsafe(_deliver, future, value, error)


def _deliver(future: ThreadEnd, value: Any, error: BaseException | None) -> None:
    if not future.done():
        future.set_result((value, error))
