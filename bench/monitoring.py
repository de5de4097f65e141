"""Tells what clients send a Redis server from what its scripts do by themselves."""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

from redis.asyncio import Redis


class Requests:
    """What was counted so far.

    :ivar sent: commands of clients; a script is one, however much it does
    :ivar inside: commands that scripts ran
    """

    def __init__(self) -> None:
        self.sent = 0
        self.inside = 0


@asynccontextmanager
async def monitored(url: str) -> AsyncGenerator[Requests]:
    """Count all that the server is asked within, by whomever; whole when it is left.

    The server writes each command out, which slows it down: for where little is asked.
    """
    async with aclosing(Redis.from_url(url)) as client, aclosing(Redis.from_url(url)) as other:
        # Connected before, so that the counts hold nothing of it.
        await client.ping()
        async with other.monitor() as monitor:
            requests, end = Requests(), secrets.token_hex(8)

            async def count() -> None:
                while end not in (told := await monitor.next_command())["command"]:
                    if told["client_type"] == "lua":
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
