"""A TCP proxy between a program and a store that misbehaves on demand.

The proxy runs in a thread of its own, so a test can switch faults from any event loop, or none.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from tests.support.listening import all_accepted

_CHUNK = 65_536
_AT_ONCE = struct.pack("ii", 1, 0)
"""For SO_LINGER: closing resets the connection instead of ending it in good order."""


class _Faults:
    """The faults that are switched on. Only the proxy's own loop reads and writes them."""

    def __init__(self) -> None:
        self.request_delay = 0.0
        self.reply_delay = 0.0
        self.reply_rate: float | None = None
        self.swallows = False
        self.cut_after: int | None = None
        self.thawed = asyncio.Event()
        self.thawed.set()


class _Link:
    """A connection of a client, and the connection to the store made for the client."""

    def __init__(self, faults: _Faults, client: asyncio.StreamWriter) -> None:
        self._faults = faults
        self._client = client
        self._store: asyncio.StreamWriter | None = None
        self._replied = 0
        self.lost_bytes = False
        self.is_silent = False

    async def run(self, reader: asyncio.StreamReader, host: str, port: int) -> None:
        await self._faults.thawed.wait()
        from_store, self._store = await asyncio.open_connection(host, port)
        async with asyncio.TaskGroup() as both:
            both.create_task(self._pump(reader, self._store, self._request))
            both.create_task(self._pump(from_store, self._client, self._reply))
        # Whatever is left to be sent goes out, unless the proxy ends before.
        await self._client.wait_closed()
        await self._store.wait_closed()

    def abort(self) -> None:
        """Reset both connections at once."""
        for writer in (self._client, self._store):
            if writer is None:
                continue
            raw: socket.socket = writer.get_extra_info("socket")
            with suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            writer.transport.abort()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        passes: Callable[[bytes], Awaitable[bytes]],
    ) -> None:
        while data := await reader.read(_CHUNK):
            await self._faults.thawed.wait()
            if through := await passes(data):
                writer.write(through)
                await writer.drain()
            if self._is_used_up():
                await writer.drain()
                break
        # Either side's end is the end of both: no store of ours closes one direction only.
        self.abort() if self._is_used_up() else writer.close()

    async def _request(self, data: bytes) -> bytes:
        if self.is_silent:
            return b""
        if delay := self._faults.request_delay:
            await _pause(delay)
        return data

    async def _reply(self, data: bytes) -> bytes:
        if delay := self._faults.reply_delay:
            await _pause(delay)
        if rate := self._faults.reply_rate:
            await _pause(len(data) / rate)
        if self._faults.swallows or self.is_silent:
            self.lost_bytes = True
            return b""
        if self._faults.cut_after is not None:
            data = data[: self._faults.cut_after - self._replied]
        self._replied += len(data)
        return data

    def start_count(self) -> None:
        """Count reply bytes from here."""
        self._replied = 0

    def _is_used_up(self) -> bool:
        limit = self._faults.cut_after
        return limit is not None and self._replied >= limit


async def _pause(seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)


class Proxy:
    """Passes everything through until a fault is switched on. :meth:`heal` ends all faults."""

    def __init__(self, url: str) -> None:
        """Make a proxy that has not started.

        :param url: of the store, with host and port
        """
        self._target = urlsplit(url)
        self._links: set[_Link] = set()
        self._accepted = 0
        self._listening: asyncio.Server | None = None
        self._port = 0
        self._started = threading.Event()

    @property
    def url(self) -> str:
        """The same store, through the proxy."""
        before, separator, _ = self._target.netloc.rpartition("@")
        netloc = f"{before}{separator}127.0.0.1:{self._port}"
        return urlunsplit(self._target._replace(netloc=netloc))

    @property
    def accepted(self) -> int:
        """Connections so far."""
        return self._accepted

    @property
    def connections(self) -> int:
        """Connections open now."""
        return len(self._links)

    # -- faults ------------------------------------------------------------------------------

    def slow_down(self, *, requests: float = 0.0, replies: float = 0.0) -> None:
        """Hold each piece that passes back for so many seconds, per direction."""
        self._do(lambda: self._set(request_delay=requests, reply_delay=replies))

    def narrow(self, bytes_per_second: float) -> None:
        """Let so many bytes of answers pass on each connection."""
        self._do(lambda: self._set(reply_rate=bytes_per_second))

    def freeze(self) -> None:
        """Let nothing pass and close nothing. New connections are accepted and not answered.

        Data sent meanwhile arrives at the end, as on a network that was gone for a while.
        """
        self._do(self._faults.thawed.clear)

    def swallow_replies(self) -> None:
        """Requests arrive, their answers do not."""
        self._do(lambda: self._set(swallows=True))

    def silence(self) -> None:
        """Silence the present connections, as after a failover that moved the address.

        New connections are served.
        """

        def begin() -> None:
            for link in self._links:
                link.is_silent = True

        self._do(begin)

    def lead_to(self, url: str) -> None:
        """Send new connections to another server. Those of now stay where they are."""
        self._do(lambda: setattr(self, "_target", urlsplit(url)))

    def cut_replies_after(self, count: int) -> None:
        """Reset each connection, open or new, once ``count`` more bytes of answers have passed."""

        def begin() -> None:
            for link in self._links:
                link.start_count()
            self._set(cut_after=count)

        self._do(begin)

    def cut(self) -> None:
        """Reset every connection now. New connections are welcome."""
        self._do(self._abort_all)

    def refuse(self) -> None:
        """Reset every connection, and refuse new ones."""
        self._do_async(self._close)

    def heal(self) -> None:
        """End every fault. A connection that has lost bytes is reset, as nothing can follow."""

        async def mend() -> None:
            self._set(
                request_delay=0.0,
                reply_delay=0.0,
                reply_rate=None,
                swallows=False,
                cut_after=None,
            )
            for link in list(self._links):
                if link.lost_bytes:
                    link.abort()
            self._faults.thawed.set()
            if self._listening is None:
                await self._listen()

        self._do_async(mend)

    # -- inside ------------------------------------------------------------------------------

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self._faults, name, value)

    def _abort_all(self) -> None:
        for link in list(self._links):
            link.abort()

    async def _listen(self) -> None:
        self._listening = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._listening.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        self._abort_all()

    def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Coroutine[Any, Any, None]:
        """Take a connection, known before the task begins: one cancelled before never begins."""
        self._accepted += 1
        link = _Link(self._faults, writer)
        self._links.add(link)
        return self._serve(link, reader)

    async def _serve(self, link: _Link, reader: asyncio.StreamReader) -> None:
        try:
            await link.run(reader, self._target.hostname or "127.0.0.1", self._target.port or 0)
        except* (OSError, asyncio.CancelledError):
            # reset by either side, no store, or the proxy's end: the client sees the connection end
            pass
        finally:
            link.abort()
            self._links.discard(link)

    def _do(self, function: Callable[[], None]) -> None:
        async def step() -> None:
            function()

        self._do_async(step)

    def _do_async(self, function: Callable[[], Any]) -> None:
        asyncio.run_coroutine_threadsafe(function(), self._loop).result(10)

    def _run(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._faults = _Faults()
        self._stop = asyncio.Event()
        await self._listen()
        self._started.set()
        await self._stop.wait()
        await self._close()
        await all_accepted()
        links = asyncio.all_tasks() - {asyncio.current_task()}
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)
        self._abort_all()


@contextmanager
def proxy(url: str) -> Iterator[Proxy]:
    """A proxy in front of the store at ``url``, gone afterwards."""
    made = Proxy(url)
    thread = threading.Thread(target=made._run, name="proxy", daemon=True)
    thread.start()
    assert made._started.wait(10), "the proxy does not start"
    try:
        yield made
    finally:
        made._do(made._stop.set)
        thread.join(10)
