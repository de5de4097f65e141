"""A program under a guardian, as the pod sees the program."""

import asyncio
import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

from msgspec import Struct

from forge_jobs.runtime.shared.uncancellable import wait_to_its_end

_GUARDIAN = str(Path(__file__).with_name("guardian.py"))
_REAPED_EVERY = 0.005


class NoProcess(RuntimeError):
    """The system starts no further process, or the program cannot be executed.

    :ivar errno: the system's number of the error, None for another reason
    """

    def __init__(self, message: str, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno


class ProgramEnd(Struct, frozen=True):
    """How a program ended.

    :param exit_code: minus the number of the signal that killed the program
    :param memory: bytes in use when the program was killed for the limit of memory, else 0
    """

    exit_code: int
    memory: int = 0

    def __str__(self) -> str:
        if self.exit_code >= 0:
            return f"ended with exit code {self.exit_code}"
        try:
            name = signal.Signals(-self.exit_code).name
        except ValueError:
            name = f"signal {-self.exit_code}"
        return f"was killed by {name}"


def unread(connection: socket.socket | None) -> bytes:
    """Return what a lost connection still holds, for ``connection_lost``.

    A write to a socket whose other end has gone ends the connection before the last words of the
    other end are read.
    """
    parts = []
    with suppress(OSError):
        while connection is not None and (part := connection.recv(256 * 1024)):
            parts.append(part)
    return b"".join(parts)


def is_hung_up(end: socket.socket | BinaryIO | None) -> bool:
    """Return whether the other end of a socket, or of a pipe that is written to, is closed.

    Asks the system, so that a process that ended a moment ago is known before the event loop knows.
    """
    if end is None:
        return False
    look = select.poll()
    try:
        look.register(end, 0)
    except ValueError:
        return True
    return bool(look.poll(0))


async def attach(protocol: asyncio.Protocol, connected: socket.socket) -> None:
    """Connect the protocol to a socket of a pair, also when the caller is cancelled meanwhile.

    A cancelled ``create_connection`` of uvloop leaves a closed transport, and the protocol never
    hears of the end.
    """
    loop = asyncio.get_running_loop()
    attaching = loop.create_task(loop.create_connection(lambda: protocol, sock=connected))
    await wait_to_its_end(attaching, lambda: None)


class GuardedProgram(asyncio.Protocol):
    """A started program. Ends, with all descendants, at the latest when the pod does."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[ProgramEnd] = loop.create_future()
        """Done when no process of the program is left."""
        self._started: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._guardian: subprocess.Popen[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._lines = b""
        self._end: ProgramEnd | None = None
        self._refused = 0

    @property
    def guardian_id(self) -> int:
        """Return the process id of the guardian."""
        return 0 if self._guardian is None else self._guardian.pid

    async def start(
        self,
        argv: Sequence[str],
        *,
        program: str | None = None,
        environ: Mapping[str, str] | None = None,
        folder: str | None = None,
        streams: tuple[int | None, int | None, int | None] = (subprocess.DEVNULL, None, None),
        inherited: Sequence[int] = (),
    ) -> None:
        """Start the program, in a session and a process group of its own.

        :param program: path of the program. ``argv[0]`` when left out
        :param environ: None: the environment of the pod
        :param streams: standard input, output and error, as for ``subprocess.Popen``
        :param inherited: descriptors that the program gets under the same numbers
        :raises NoProcess: says why no program runs
        """
        ours, theirs = self.socket_pair()
        descriptors = ",".join(map(str, inherited))
        named = [str(theirs.fileno()), descriptors, program or argv[0]]
        try:
            self._guardian = subprocess.Popen(  # noqa: ASYNC220 - returns in a millisecond
                [sys.executable, "-I", "-S", _GUARDIAN, *named, *argv],
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
                env=environ,
                cwd=folder,
                pass_fds=(theirs.fileno(), *inherited),
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise self._never_started(error) from error
        finally:
            theirs.close()
        self._socket = ours
        await attach(self, ours)
        try:
            await asyncio.shield(self._started)
        except asyncio.CancelledError:
            self.kill()
            raise
        if self._refused:
            # The guardian of no program is gone too when the caller hears of the refusal.
            await asyncio.shield(self.ended)
            raise NoProcess(os.strerror(self._refused), self._refused)

    def socket_pair(self) -> tuple[socket.socket, socket.socket]:
        """Return the pod's end and the program's end of a connection.

        :raises NoProcess: the pod has too many files open, and the program is not started
        """
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise self._never_started(error) from error
        ours.setblocking(False)
        return ours, theirs

    def give_up(self) -> None:
        """Count a program that was never started as ended."""
        if self._guardian is None and not self.ended.done():
            self.ended.set_result(ProgramEnd(-signal.SIGKILL))

    def _never_started(self, error: OSError) -> NoProcess:
        self.give_up()
        return NoProcess(error.strerror or str(error), error.errno)

    def terminate(self) -> None:
        """Send SIGTERM to the process group."""
        self._send(b"TERM\n")

    def kill(self) -> None:
        """Kill the program and all descendants."""
        self._send(b"KILL\n")

    def limit_memory(self, most: int) -> None:
        """Kill the program when all its processes together use more bytes than that. 0: never."""
        self._send(b"MEMORY %d\n" % most)

    def _send(self, line: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(line)

    # -- calls of the event loop -------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: the transports of uvloop are no subclass.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self._lines = (self._lines + data).split(b"\n")
        for line in lines:
            said: dict[str, int] = json.loads(line)
            if "ended" in said:
                self._end = ProgramEnd(said["ended"], said["memory"])
            self._refused = said.get("refused", self._refused)
            if not self._started.done() and "ended" not in said:
                self._started.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self.data_received(unread(self._socket))
        if not self._started.done():
            self._refused = errno.ESRCH
            self._started.set_result(None)
        # Without a word of the end the guardian itself was killed, and the program with it.
        self._end = self._end or ProgramEnd(-signal.SIGKILL)
        self._reap()

    def _reap(self) -> None:
        """Collect the guardian, which ends at once, and tell the end."""
        if self._guardian is not None and self._guardian.poll() is None:
            self._loop.call_later(_REAPED_EVERY, self._reap)
            return
        if not self.ended.done():
            assert self._end is not None
            self.ended.set_result(self._end)
