"""First signal: drain. Second signal: hurry."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from forge_jobs.reports import reporter

logger = reporter(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_installed: set[int] = set()


def _forget_in_child() -> None:
    # A forked child shares the pipe by which signals reach the parent's loop: without this,
    # a signal to the child would stop the parent and leave the child alive.
    if _installed:
        signal.set_wakeup_fd(-1)
        for signum in _installed:
            signal.signal(signum, signal.SIG_DFL)
        _installed.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


@contextmanager
def on_stop_signals(drain: Callable[[], None], hurry: Callable[[], None]) -> Iterator[None]:
    """Call ``drain`` at the first stop signal and ``hurry`` at every later one.

    What was installed before comes back at the end. Outside the main thread, where Python
    delivers no signals, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {signum: signal.getsignal(signum) for signum in STOP_SIGNALS}
    received = 0

    def receive(signum: int) -> None:
        nonlocal received
        received += 1
        name = signal.Signals(signum).name
        if received == 1:
            logger.info("%s: draining; a second signal stops at once", name)
            drain()
        else:
            logger.warning("%s again: handlers are interrupted now", name)
            hurry()

    for signum in STOP_SIGNALS:
        loop.add_signal_handler(signum, receive, signum)
        _installed.add(signum)
    try:
        yield
    finally:
        for signum, handler in before.items():
            loop.remove_signal_handler(signum)
            _installed.discard(signum)
            if handler is not None:
                signal.signal(signum, handler)
