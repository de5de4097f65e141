"""Threads of the engine that have an event loop of their own: one that fails is started again."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from forge_jobs.clock import SystemClock
from forge_jobs.outages import Pauses
from forge_jobs.reports import defer_reports, reporter

logger = reporter(__name__)

_FIRST_PAUSE = 0.05
_WELL_AFTER = 60.0
"""Seconds of work after which an earlier failure counts no more."""


class EngineThread:
    """Runs ``work`` on an event loop in a thread, and again after a growing pause when ``work``
    raises.

    The thread waits for no log, and neither does anything on the thread's loop. A daemon: a
    program that forgets to close the thread's owner ends all the same.

    :param work: one run. To return is to end the thread
    :param on_failure: called on the thread after each failure, before the pause
    :param on_end: called on the thread as its last step
    :param longest_pause: seconds between a failure and the next run at most
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], Coroutine[Any, Any, None]],
        *,
        on_failure: Callable[[BaseException], None] = lambda _: None,
        on_end: Callable[[], None] = lambda: None,
        longest_pause: float = 2.0,
    ) -> None:
        self.failures = 0
        """Runs in a row that raised."""
        self._work = work
        self._on_failure = on_failure
        self._on_end = on_end
        self._pauses = Pauses(_FIRST_PAUSE, longest_pause)
        self._over = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._elapsed = SystemClock().elapsed
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_alive(self) -> bool:
        """The thread has been started and has not ended."""
        return self._thread.is_alive()

    @property
    def is_over(self) -> bool:
        """No further run begins."""
        return self._over.is_set()

    def start(self) -> None:
        """Begin."""
        # Here too: libraries may log while the thread starts.
        defer_reports(self._thread)
        self._thread.start()

    def over(self) -> None:
        """Begin no further run. End ``work`` by other means. Callable from any thread."""
        self._over.set()

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` on the loop of the thread. Nothing when that has ended."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(callback)

    def join(self, at_most: float | None = None) -> None:
        """Wait for the end of the thread."""
        self._thread.join(at_most)

    def _run(self) -> None:
        try:
            while not self.is_over:
                began = self._elapsed()
                try:
                    self._run_once()
                    return
                except BaseException as error:  # what depends on this thread would stand still
                    if self._elapsed() - began > _WELL_AFTER:
                        self.failures = 0
                    self.failures += 1
                    logger.error(
                        "thread %s of forge_jobs failed and is started again",
                        self._thread.name,
                        exc_info=error,
                    )
                    with suppress(Exception):
                        self._on_failure(error)
                self._over.wait(self._pauses.after(self.failures))
        finally:
            self._loop = None
            self._on_end()

    def _run_once(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._loop.set_exception_handler(self._report)
            runner.run(self._work())

    def _report(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        logger.error(
            "thread %s: %s",
            self._thread.name,
            context.get("message", "an error in its event loop"),
            exc_info=context.get("exception"),
        )
