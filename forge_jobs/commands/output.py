"""The output of programs, read to the end and kept in bounds."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, cast

_PACE, _PACE_BYTES = 0.005, 256 * 1024
"""Seconds of rest after so many bytes beyond what is kept: a program that writes without end must
not keep the event loop busy."""


class Sink(Protocol):
    """Takes the output of a program."""

    def add(self, data: bytes) -> None:
        """Take what was written next."""
        ...

    @property
    def is_full(self) -> bool:
        """Return whether what follows may wait: the reading goes on in a bounded pace."""
        ...


class Kept:
    """The beginning and the end of a text, and the number of all bytes.

    :param most: bytes that are kept, half from either end
    """

    def __init__(self, most: int) -> None:
        self.total = 0
        self._most = most
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        """Take what was written next."""
        self.total += len(data)
        room = max(self._most // 2 - len(self._head), 0)
        self._head += data[:room]
        self._tail += data[room:]
        most = self._most - self._most // 2
        if len(self._tail) > 4 * most:
            del self._tail[:-most]

    @property
    def left_out(self) -> int:
        """Return how many bytes are not in :meth:`text`."""
        return max(self.total - self._most, 0)

    @property
    def is_full(self) -> bool:
        """Return whether what follows is counted only, or pushes out what is kept."""
        return self.left_out > 0

    def text(self) -> str:
        """Return what is kept. Where bytes are left out, a line says how many."""
        if not self.left_out:
            return _text(self._head + self._tail)
        tail = self._tail[-(self._most - self._most // 2) :]
        return f"{_text(self._head)}\n[... {self.left_out:,} bytes left out ...]\n{_text(tail)}"


def _text(data: bytes | bytearray) -> str:
    # PostgreSQL keeps no NUL character.
    return data.decode("utf-8", "replace").replace("\0", "\ufffd")


class OutputPipe(asyncio.Protocol):
    """The pod's end of a pipe that a program writes to.

    :ivar sink: takes what arrives
    """

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.ReadTransport | None = None
        self._debt = 0

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[int]:
        """Give the program's end, for the start of the program.

        :raises OSError: too many files are open
        """
        ours, theirs = os.pipe()
        try:
            await self._loop.connect_read_pipe(lambda: self, os.fdopen(ours, "rb", 0))
            yield theirs
        finally:
            os.close(theirs)

    def close(self) -> None:
        """Read no more."""
        if self._transport is not None:
            self._transport.close()

    # -- calls of the event loop -------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: the transports of uvloop are no subclass.
        transport = cast("asyncio.ReadTransport", transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.sink.add(data)
        self._debt += len(data) if self.sink.is_full else 0
        if self._debt >= _PACE_BYTES and self._transport is not None:
            self._debt = 0
            self._transport.pause_reading()
            self._loop.call_later(_PACE, self._go_on)

    def _go_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
