"""The way of a command: to one server, a primary behind sentinels, or a cluster."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from redis.asyncio.connection import Connection

from forge_jobs.storage.redis.driver.address import Host, RedisUrl
from forge_jobs.storage.redis.driver.cluster import Cluster
from forge_jobs.storage.redis.driver.connections import Pool, Turn, connect_to
from forge_jobs.storage.redis.driver.sentinels import Sentinels


class Servers(Protocol):
    """Where the jobs are. Bound to one event loop."""

    async def take(self, turns: Sequence[Turn]) -> list[list[Any]]:
        """Return the replies of each turn, an error reply as its exception. Turns are independent.

        Nothing is sent twice unless the server has refused to run it.
        """
        ...

    async def take_some(self, turns: Sequence[Turn], *, wait: bool = True) -> list[list[Any]]:
        """:meth:`take`, with the error of a server that does not answer as each of its replies.

        Within little more than half of the time limit of a call.

        :param wait: False: do not even ask a server that was silent the last time
        :raises redis.exceptions.RedisError: there is one server, or no server knows the others
        """
        ...

    async def each(self) -> list[Pool]:
        """Return every server that takes writes."""
        ...

    def pools(self) -> Sequence[Pool]:
        """Return the connections to the servers that have been asked."""
        ...

    async def connect(self) -> Connection:
        """A connection of the caller's own, to any server on which messages are heard."""
        ...

    async def close(self) -> None:
        """Close what is idle. No call may be under way."""
        ...


def servers_of(url: RedisUrl) -> Servers:
    """Return the servers that ``url`` names. Connects to nothing yet."""
    if url.kind == "cluster":
        return Cluster(url)
    if url.kind == "sentinel":
        sentinels = Sentinels(url)
        return Single(url, sentinels.connect, sentinels.have_left)
    return Single(url)


def use_of(pools: Sequence[Pool], size: int) -> dict[str, int]:
    """Return the fields of ``StoreHealth`` about connections.

    Each server of a cluster has connections of its own: where the fewest are left counts.
    """
    return {
        "pool_size": size,
        "pool_in_use": max((pool.in_use for pool in pools), default=0),
        "pool_waits": sum(pool.waits for pool in pools),
    }


class Single:
    """A single server.

    :param make: finds the server and connects. None: the URL names the server
    :param has_left: whether another has taken the server's place, see :class:`Pool`
    """

    def __init__(
        self,
        url: RedisUrl,
        make: Callable[[], Awaitable[Connection]] | None = None,
        has_left: Callable[[Host], Awaitable[bool]] | None = None,
    ) -> None:
        async def connect_directly() -> Connection:
            return await connect_to(url, url.hosts[0])

        self._make = make or connect_directly
        self._pool = Pool(self._make, url.pool_size, has_left)

    async def take(self, turns: Sequence[Turn]) -> list[list[Any]]:
        replies = iter(await self._pool.converse([command for turn in turns for command in turn]))
        return [[next(replies) for _ in turn] for turn in turns]

    async def take_some(self, turns: Sequence[Turn], *, wait: bool = True) -> list[list[Any]]:
        return await self.take(turns)

    async def each(self) -> list[Pool]:
        return [self._pool]

    def pools(self) -> Sequence[Pool]:
        return [self._pool]

    async def connect(self) -> Connection:
        return await self._make()

    async def close(self) -> None:
        await self._pool.close()
