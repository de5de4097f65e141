"""Separates the commands of clients of a Redis server from the commands inside scripts."""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

from redis.asyncio import Redis


class Requests:
    """The counts so far.

    :ivar sent: commands of clients. A script is one, however much it does
    :ivar inside: commands that scripts ran
    """

    def __init__(self) -> None:
        self.sent = 0
        self.inside = 0


@asynccontextmanager
async def monitored(url: str) -> AsyncGenerator[Requests]:
    """Count all commands of all clients in the block. Complete after the block.

    The server writes each command out, which slows it down: for few commands only.
    """
    async with aclosing(Redis.from_url(url)) as client, aclosing(Redis.from_url(url)) as other:
        # Connected before, so that the counts hold nothing of the connection.
        await client.ping()
        async with other.monitor() as monitor:
            requests, end = Requests(), secrets.token_hex(8)

            async def count() -> None:
                while end not in (command := await monitor.next_command())["command"]:
                    if command["client_type"] == "lua":
                        requests.inside += 1
                    else:
                        requests.sent += 1

            counting = asyncio.create_task(count())
            try:
                yield requests
                await client.echo(end)
                await counting
            finally:
                counting.cancel()
