"""The event loop of a worker process."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from forge_jobs.reports import reporter

logger = reporter(__name__)

T = TypeVar("T")


def run_on_loop(work: Coroutine[Any, Any, T], *, use_uvloop: bool) -> T:
    """Run ``work`` to the end, although handlers call ``sys.exit()`` or stop the loop meanwhile.

    asyncio carries ``SystemExit`` and ``KeyboardInterrupt`` of any task out of the loop. Nothing
    is lost by that: the loop goes on, and a task that waits for the raising one gets the exception.
    """
    factory = None
    if use_uvloop:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        loop = runner.get_loop()
        task = loop.create_task(work)
        while True:
            try:
                return loop.run_until_complete(task)
            except (SystemExit, KeyboardInterrupt) as error:
                if task.done() or _is_interrupt(error):
                    raise
                logger.error(
                    "a task of a handler raised %s, which would have ended the process; its job "
                    "fails when the handler waits for that task, all others go on",
                    type(error).__name__,
                    exc_info=error,
                )
            except RuntimeError:
                if task.done() or loop.is_closed():
                    raise
                logger.error(
                    "a handler stopped the event loop, which would have ended the process; the "
                    "loop goes on. Take the call of loop.stop() out of the handlers' code"
                )


def _is_interrupt(error: BaseException) -> bool:
    """A Ctrl-C before or after the time in which the worker hears of signals itself."""
    if not isinstance(error, KeyboardInterrupt):
        return False
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler
