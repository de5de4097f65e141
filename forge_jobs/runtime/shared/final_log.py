"""The log of a process that is about to end at once, without the interpreter's own shutdown."""

import asyncio
import contextlib
import logging
import sys
import threading
from collections.abc import Callable

_AT_MOST = 0.5
"""Seconds. A log handler may block, and the process must end all the same."""


def log_and_flush(say: Callable[[], object], at_most: float = _AT_MOST) -> bool:
    """Call ``say``, then flush the log and both streams. False: ``at_most`` seconds are over."""

    def run() -> None:
        with contextlib.suppress(Exception):
            say()
        _flush()

    thread = threading.Thread(target=run, name="forge-jobs-final-log", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no further thread can be started
        return False
    thread.join(at_most)
    return not thread.is_alive()


async def flush_log() -> None:
    """Flush the log and both streams while the event loop goes on. A flush that hangs is left."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answer() -> None:
        with contextlib.suppress(RuntimeError):
            done.get_loop().call_soon_threadsafe(done.set_result, None)

    def run() -> None:
        _flush()
        answer()

    try:
        threading.Thread(target=run, name="forge-jobs-final-log", daemon=True).start()
    except RuntimeError:  # no further thread can be started
        return
    await asyncio.wait({done}, timeout=_AT_MOST)


def _flush() -> None:
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    for each in loggers:
        for handler in getattr(each, "handlers", ()):
            with contextlib.suppress(Exception):
                handler.flush()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
