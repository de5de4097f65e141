"""The faults of the proxy, tried on a server that echoes."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import anyio
import pytest

from tests.support.listening import listening
from tests.support.proxy import Proxy, proxy
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

SHORT = 0.2
"""Seconds in which a byte would long have come, were one coming."""


class Echo:
    """A server that answers with the bytes that it got, and remembers them."""

    def __init__(self) -> None:
        self.got = b""
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionResetError):
            while data := await reader.read(1_000):
                self.got += data
                writer.write(data)


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    made = Echo()
    async with listening(made.serve) as made.port:
        yield made


@pytest.fixture
def through(echo: Echo) -> Iterator[Proxy]:
    with proxy(f"postgresql://user:p%40ss@127.0.0.1:{echo.port}/db?option=1") as made:
        yield made


class Line:
    """A client's connection through the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def answer(self, count: int) -> bytes:
        with anyio.fail_after(20):
            return await self._reader.readexactly(count)

    async def is_silent(self) -> bool:
        with anyio.move_on_after(SHORT):
            await self._reader.read(1)
            return False
        return True

    async def all_until_reset(self) -> bytes:
        got = b""
        with anyio.fail_after(20):
            try:
                while data := await self._reader.read(1_000):
                    got += data
            except ConnectionResetError:
                return got
        raise AssertionError("the connection ended in good order")


@pytest.fixture
async def line(through: Proxy) -> AsyncIterator[Line]:
    port = int(through.url.rpartition(":")[2].partition("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    opened = Line(reader, writer)
    opened.send(b"hello")
    assert await opened.answer(5) == b"hello"
    yield opened
    writer.close()
    through.heal()
    await _none_left(through)


async def _none_left(through: Proxy) -> None:
    await wait_until(lambda: through.connections == 0, description="no connection is left")


async def test_the_url_keeps_all_but_the_address(through: Proxy, echo: Echo) -> None:
    assert through.url.startswith("postgresql://user:p%40ss@127.0.0.1:")
    assert through.url.endswith("/db?option=1")
    assert str(echo.port) not in through.url


async def test_each_direction_is_slowed_down_by_itself(through: Proxy, line: Line) -> None:
    through.slow_down(requests=SHORT)
    began = time.monotonic()
    line.send(b"ping")
    assert await line.answer(4) == b"ping"
    assert time.monotonic() - began >= SHORT
    through.slow_down(replies=SHORT)
    began = time.monotonic()
    line.send(b"ping")
    assert await line.answer(4) == b"ping"
    assert time.monotonic() - began >= SHORT


async def test_swallowed_replies_are_those_of_requests_that_arrived(
    through: Proxy, line: Line, echo: Echo
) -> None:
    through.swallow_replies()
    line.send(b" there")
    await wait_until(lambda: echo.got == b"hello there", description="the request arrives")
    assert await line.is_silent()
    through.heal()
    assert await line.all_until_reset() == b""


async def test_a_reply_is_cut_in_the_middle(through: Proxy, line: Line) -> None:
    through.cut_replies_after(3)
    line.send(b"a long answer")
    assert await line.all_until_reset() == b"a l"


async def test_what_was_frozen_arrives_afterwards(through: Proxy, line: Line, echo: Echo) -> None:
    through.freeze()
    line.send(b"!")
    assert await line.is_silent()
    assert echo.got == b"hello"
    through.heal()
    assert await line.answer(1) == b"!"


async def test_a_new_connection_to_a_frozen_proxy_gets_no_answer(through: Proxy) -> None:
    through.freeze()
    port = int(through.url.rpartition(":")[2].partition("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    late = Line(reader, writer)
    late.send(b"?")
    assert await late.is_silent()
    through.heal()
    assert await late.answer(1) == b"?"
    writer.close()
    await _none_left(through)


async def test_cut_resets_what_is_open_and_takes_new_ones(through: Proxy, line: Line) -> None:
    through.cut()
    assert await line.all_until_reset() == b""
    await _none_left(through)
    port = int(through.url.rpartition(":")[2].partition("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    again = Line(reader, writer)
    again.send(b"?")
    assert await again.answer(1) == b"?"
    writer.close()


async def test_refused_until_it_heals_on_the_same_port(through: Proxy, line: Line) -> None:
    url = through.url
    port = int(url.rpartition(":")[2].partition("/")[0])
    through.refuse()
    assert await line.all_until_reset() == b""
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    through.heal()
    assert through.url == url
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    again = Line(reader, writer)
    again.send(b"?")
    assert await again.answer(1) == b"?"
    writer.close()


async def test_a_store_that_is_not_there_ends_the_connection() -> None:
    with proxy("redis://127.0.0.1:1/0") as broken:
        port = int(broken.url.rpartition(":")[2].partition("/")[0])
        with pytest.raises(ConnectionResetError):  # during the connect, or right after
            await _first_byte(port)


async def _first_byte(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await reader.read(1)
    finally:
        writer.close()
