"""The commands that a Redis server runs, by ``MONITOR``, for scripts of a million commands.

Lines are read as bytes. The driver makes a record of each command, which takes longer than the
command did.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from redis.asyncio import Redis

_AT_ONCE = 1 << 20
_LAST = "that-was-all"
_END = f'ECHO" "{_LAST}"'.encode()


@asynccontextmanager
async def commands_of_scripts(client: Redis) -> AsyncGenerator[list[int]]:
    """Yield a list that afterwards holds, for each script that ran, how many commands it ran.

    :param client: a client of the server, whose user is the default one
    """
    counts: list[int] = []
    place = client.connection_pool.connection_kwargs
    reader, writer = await asyncio.open_connection(place["host"], place["port"], limit=_AT_ONCE)
    try:
        writer.write(f"AUTH {place['password']}\r\nMONITOR\r\n".encode())
        for _ in range(2):
            assert await reader.readline() == b"+OK\r\n"
        yield counts
        await client.echo(_LAST)
        await _count(reader, counts)
    finally:
        writer.close()
        await writer.wait_closed()


async def _count(reader: asyncio.StreamReader, counts: list[int]) -> None:
    """Add the commands of each script, up to the last line."""
    rest = b""
    while some := await reader.read(_AT_ONCE):
        *lines, rest = (rest + some).split(b"\r\n")
        for line in lines:
            who, _, command = line.partition(b'] "')
            if who.endswith(b" lua"):
                counts[-1] += 1
            elif command[:4].upper() == b"EVAL":
                counts.append(0)
            elif command.startswith(_END):
                return
    raise AssertionError("the server has ended the connection")
