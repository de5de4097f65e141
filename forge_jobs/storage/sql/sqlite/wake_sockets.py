"""Wake-ups between the processes on one database file: a datagram for each commit with wake-ups.

Every bundle that waits for work binds a datagram socket in a folder beside the file. A bundle that
commits sends the raised signals to all sockets there, after the commit. Nothing depends on a
datagram: a lost one costs the time until the next look at the file.

The folder belongs to the user who made it and is closed to others. Processes of other users,
systems without such sockets, and processes that cannot make the folder look at the file instead.
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from forge_jobs.model.ids import new_job_id

Signals = list[tuple[str, int]]

_FOLDER_SUFFIX = "-wake"
_AT_ONCE = 200
"""Signals of one datagram, at most."""

_LARGEST = 128 * 1024
"""Bytes of a datagram: above what the topics of so many signals can take."""

_LONGEST_ADDRESS = 100
"""Bytes of a socket's path. The system takes 108 with the final zero, or 104."""

_SETTLES_NS = 50_000_000
"""A folder that changed less than this ago may change again without a later time."""

_ours: dict[str, int] = {}
"""The sockets of this process, by name, with the process's id: a forked child has none of them."""

_decoder = msgspec.msgpack.Decoder(Signals)


def folder_of(file: Path) -> Path:
    """Return the folder of the sockets of all waiters on a database file."""
    return file.with_name(file.name + _FOLDER_SUFFIX)


class WakeSocket:
    """The socket by which one bundle receives the wake-ups of other processes.

    :param tell: called on the event loop with the signals of each commit
    """

    def __init__(self, file: Path, tell: Callable[[Signals], None]) -> None:
        self._tell = tell
        self._path = folder_of(file) / new_job_id()
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            self._socket.setblocking(False)
            self._bind()
            self._loop.add_reader(self._socket.fileno(), self._receive)
        except BaseException:
            self._socket.close()
            raise

    @classmethod
    def open(cls, file: Path, tell: Callable[[Signals], None]) -> "WakeSocket | None":
        """Listen beside ``file``. None where that is not possible."""
        if not hasattr(socket, "AF_UNIX"):
            return None
        try:
            return cls(file, tell)
        # NotImplementedError: an event loop that watches no sockets.
        except (OSError, NotImplementedError):
            return None

    def close(self) -> None:
        """Stop listening. Called on the event loop, or after the loop's end."""
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        _ours.pop(self._path.name, None)
        with suppress(OSError):
            self._path.unlink()
        with suppress(OSError):  # others still listen
            self._path.parent.rmdir()

    def _bind(self) -> None:
        for attempt in (1, 2):
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            try:
                with _Address(self._path) as address:
                    self._socket.bind(address)
                _ours[self._path.name] = os.getpid()
                return
            except FileNotFoundError:
                # The last other listener removed the folder in between.
                if attempt == 2:
                    raise

    def _receive(self) -> None:
        try:
            while True:
                message = self._socket.recv(_LARGEST)
                with suppress(msgspec.MsgspecError):  # not of this version
                    self._tell(_decoder.decode(message))
        except OSError:  # nothing more is there
            return


class WakeSender:
    """Sends the signals of commits to the sockets beside one file. Used by one thread at a time."""

    def __init__(self, file: Path) -> None:
        self._folder = folder_of(file)
        self._changed_ns = -1
        self._names: list[str] = []
        self._socket: socket.socket | None = None

    def send(self, signals: Sequence[tuple[str, int]]) -> None:
        """Send ``signals`` to all but the sockets of this process, without waiting."""
        process_id = os.getpid()
        names = [name for name in self._listeners() if _ours.get(name) != process_id]
        if not names:
            return
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)
        for start in range(0, len(signals), _AT_ONCE):
            message = msgspec.msgpack.encode(signals[start : start + _AT_ONCE])
            for name in names:
                self._send(message, self._folder / name)

    def close(self) -> None:
        """Release the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _listeners(self) -> list[str]:
        try:
            changed_ns = os.stat(self._folder).st_mtime_ns
            if changed_ns != self._changed_ns:
                self._names = os.listdir(self._folder)
                is_settled = time.time_ns() - changed_ns > _SETTLES_NS
                self._changed_ns = changed_ns if is_settled else -1
        except OSError:  # no listener, or none of this user
            self._changed_ns, self._names = -1, []
        return self._names

    def _send(self, message: bytes, path: Path) -> None:
        assert self._socket is not None
        try:
            with _Address(path) as address:
                self._socket.sendto(message, address)
        except ConnectionRefusedError:
            # The socket's process was killed: a name is bound only once.
            with suppress(OSError):
                path.unlink()
        except OSError:
            # A full buffer already makes the waiter look, or the socket has just been closed.
            return


class _Address:
    """The address of a socket at any path, also a long one, for the length of one call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder: int | None = None

    def __enter__(self) -> str:
        whole = str(self._path)
        if len(os.fsencode(whole)) <= _LONGEST_ADDRESS:
            return whole
        self._folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._folder}/{self._path.name}"

    def __exit__(self, *exc_info: object) -> None:
        if self._folder is not None:
            os.close(self._folder)
