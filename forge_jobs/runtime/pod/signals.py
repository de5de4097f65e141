"""Signals of a process. First signal: drain. Second: end the grace. Third: end the patience."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType

from forge_jobs.reports import reporter
from forge_jobs.runtime.shared.service import Wakeup

logger = reporter(__name__)

_ALWAYS = ("SIGTERM", "SIGINT")
_UNLESS_TAKEN = ("SIGHUP", "SIGQUIT")
"""By default these signals end a process, and its jobs with it. Some programs give them another
meaning, and ``nohup`` ignores the first.
"""

_installed: set[int] = set()


def _forget_in_child() -> None:
    # A forked child shares the pipe by which signals reach the parent's loop. Without this, a
    # signal to the child would stop the parent and leave the child alive.
    if _installed:
        signal.set_wakeup_fd(-1)
        for signum in _installed:
            signal.signal(signum, signal.SIG_DFL)
        _installed.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


class StopRequest:
    """The request to stop a process. The request may come before the pod has started."""

    def __init__(self) -> None:
        self.is_asked = False
        self._wakeup = Wakeup()
        self._hurries = 0
        self._hurry: Callable[[], None] | None = None

    def drain(self) -> None:
        """Ask for a stop."""
        self.is_asked = True
        self._wakeup.wake()

    def hurry(self) -> None:
        """Ask for a quicker end, and at the next call for a still quicker one."""
        self.drain()
        self._hurries += 1
        if self._hurry is not None:
            self._hurry()

    def on_hurry(self, hurry: Callable[[], None]) -> None:
        """Call ``hurry`` at each further :meth:`hurry`, and now for each earlier one."""
        self._hurry = hurry
        for _ in range(self._hurries):
            hurry()

    async def wait(self, at_most: timedelta | None = None) -> None:
        """Wait until a stop is asked for. For one waiter at a time."""
        if not self.is_asked:
            await self._wakeup.wait(at_most)


@contextmanager
def on_stop_signals(
    drain: Callable[[], None],
    hurry: Callable[[], None],
    heard: Callable[[], None] | None = None,
) -> Iterator[None]:
    """Call ``drain`` at the first stop signal and ``hurry`` at every later one, on the event loop.

    The earlier handlers come back at the end. Outside the main thread, where Python delivers no
    signals, nothing is installed.

    :param heard: called in the signal handler itself, also while the event loop is blocked. The
        call may interrupt any code, and must not take a lock
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {signum: signal.getsignal(signum) for signum in _to_take()}
    names: list[str] = []

    def receive(signum: int) -> None:
        name = signal.Signals(signum).name
        names.append(name)
        if len(names) == 1:
            logger.info("%s: draining; a second signal interrupts the handlers", name)
            drain()
        else:
            logger.warning("%s after %s: handlers are interrupted now", name, names[-2])
            hurry()

    def handle(signum: int, frame: FrameType | None) -> None:
        if heard is not None:
            heard()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(receive, signum)

    for signum in before:
        signal.signal(signum, handle)
        _installed.add(signum)
    try:
        yield
    finally:
        for signum, handler in before.items():
            _installed.discard(signum)
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)


def _to_take() -> list[int]:
    """Return the stop signals of this system that are not in use for something else."""
    wanted = [signum for name in _ALWAYS if (signum := getattr(signal, name, None))]
    optional = [signum for name in _UNLESS_TAKEN if (signum := getattr(signal, name, None))]
    return wanted + [each for each in optional if signal.getsignal(each) is signal.SIG_DFL]
