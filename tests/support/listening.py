"""Servers of tests that leave no connection behind."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def all_accepted() -> None:
    """Let the loop turn until all who had connected before a server closed are being served."""
    for _ in range(10):
        await anyio.lowlevel.checkpoint()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes until one side ends."""
    try:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
    finally:
        writer.close()


@asynccontextmanager
async def listening(
    serve: Serve, *hosts: str, port: int = 0, **options: Any
) -> AsyncGenerator[int]:
    """Serve on one port of each of the hosts (127.0.0.1 without any), and yield the port.

    In the end every connection is reset, and has gone.

    :param options: of ``asyncio.start_server``
    """
    tasks: set[asyncio.Task[Any]] = set()
    writers: list[asyncio.StreamWriter] = []

    def tracked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Known before the task has begun: a task that is cancelled before never begins.
        writers.append(writer)
        task = asyncio.ensure_future(serving(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def serving(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    running: list[asyncio.Server] = []
    for host in hosts or ("127.0.0.1",):
        running.append(await asyncio.start_server(tracked, host, port, **options))
        port = running[0].sockets[0].getsockname()[1]
    try:
        yield port
    finally:
        for server in running:
            server.close()
        await all_accepted()
        cancelled = list(tasks)
        for task in cancelled:
            task.cancel()
        await asyncio.gather(*cancelled, return_exceptions=True)
        for writer in writers:
            with suppress(AttributeError):  # Python 3.11.2, of a TLS connection that has ended
                writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()
