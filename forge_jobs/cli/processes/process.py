"""A worker process, as its parent sees the process."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from forge_jobs.cli.processes.link import FULL, LEAVES, READY, STARTED
from forge_jobs.clock import SystemClock

SUCCESSOR = "--successor"
"""The option of a process that answers probes only once the pod runs. Until then the process before
answers them."""

_elapsed = SystemClock().elapsed


class Child(NamedTuple):
    """The start of a process: a command and an environment.

    The command is to listen to the link at stdin, so that no worker outlives a parent that was
    killed.

    :param listener: the socket of the probes, which the process inherits under the same number.
        The parent keeps the socket open, so that a successor answers on the same port
    """

    command: Sequence[str]
    environ: Mapping[str, str]
    listener: socket.socket | None = None


class Process:
    """A worker process that has been started.

    :ivar started: done when a pod has started, so the code is loaded
    :ivar ready: done when the pod is able to claim
    :ivar full: done when the process asks for a successor
    :ivar leaves: done when an operator has asked the pod to stop
    :ivar end: the exit code, once the process has ended
    """

    def __init__(self, process: asyncio.subprocess.Process, link: socket.socket) -> None:
        self.started_at = _elapsed()
        self._loop = asyncio.get_running_loop()
        self.started: asyncio.Future[None] = self._loop.create_future()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.full: asyncio.Future[None] = self._loop.create_future()
        self.leaves: asyncio.Future[None] = self._loop.create_future()
        self.end = asyncio.ensure_future(process.wait())
        self._process = process
        self._link = link
        self._loop.add_reader(link, self._hear)
        self.end.add_done_callback(self._close)

    @classmethod
    async def start(cls, child: Child, options: Sequence[str] = ()) -> "Process":
        """Start a process.

        :param options: of the command line, behind those of the child
        :raises OSError: the system has no room for another process, or no such program
        :raises RuntimeError: the system has no room for another thread
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *child.command,
                    *options,
                    stdin=theirs.fileno(),
                    env=child.environ,
                    # Ctrl-C in a terminal goes to all processes there. Ours hear of it from the
                    # parent.
                    start_new_session=True,
                    pass_fds=() if child.listener is None else (child.listener.fileno(),),
                )
            ours.setblocking(False)
        except BaseException:
            ours.close()
            raise
        return cls(process, ours)

    @property
    def age(self) -> float:
        """Return the seconds since the start."""
        return _elapsed() - self.started_at

    def say(self, word: bytes) -> None:
        """Send a word over the link. A process that has ended hears nothing."""
        with contextlib.suppress(OSError):
            self._link.send(word)

    def kill(self) -> None:
        """Kill the process, if the process runs."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)

    def _hear(self) -> None:
        try:
            words = self._link.recv(64)
        except BlockingIOError:
            return
        except OSError:
            words = b""
        if not words:
            self._loop.remove_reader(self._link)
        meanings = {STARTED: self.started, READY: self.ready, FULL: self.full, LEAVES: self.leaves}
        for word, future in meanings.items():
            if word in words and not future.done():
                future.set_result(None)

    def _close(self, _: "asyncio.Future[int]") -> None:
        # The end may be known before the last words are read.
        self._hear()
        self._loop.remove_reader(self._link)
        self._link.close()
