"""One server, a primary behind sentinels, or a cluster: where a command goes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from redis.asyncio.connection import Connection
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as NotConnected

from forge_jobs.errors import StorageError
from forge_jobs.storage.redis.address import Host, RedisUrl
from forge_jobs.storage.redis.connections import Command, Pool, connect, connect_to, converse
from forge_jobs.storage.redis.errors import TRANSLATED, name_server

Turn = Sequence[Command]
"""Commands that go to one server on one connection, without a pause; the first decides where."""

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
_SLOTS = 16_384


class Servers(Protocol):
    """Where the jobs are. Bound to one event loop."""

    async def take(self, turns: Sequence[Turn]) -> list[list[Any]]:
        """The replies of each turn, an error reply as its exception. Turns are independent.

        Nothing is sent twice unless its server has refused to run it.
        """
        ...

    async def each(self) -> list[Pool]:
        """Every server that takes writes."""
        ...

    async def connect(self) -> Connection:
        """A connection of the caller's own, to any server on which messages are heard."""
        ...

    async def close(self) -> None:
        """Close what is idle. No call may be under way."""
        ...


def servers_of(url: RedisUrl) -> Servers:
    """The servers that ``url`` names; connects to nothing yet."""
    if url.kind == "cluster":
        return Cluster(url)
    return Single(url, _Sentinels(url).connect if url.kind == "sentinel" else None)


class Single:
    """One server.

    :param make: finds it and connects; None: it is the one in the URL
    """

    def __init__(
        self, url: RedisUrl, make: Callable[[], Awaitable[Connection]] | None = None
    ) -> None:
        async def connect_directly() -> Connection:
            return await connect_to(url, url.hosts[0])

        self._make = make or connect_directly
        self._pool = Pool(self._make, url.pool_size)

    async def take(self, turns: Sequence[Turn]) -> list[list[Any]]:
        replies = iter(await self._pool.converse([command for turn in turns for command in turn]))
        return [[next(replies) for _ in turn] for turn in turns]

    async def each(self) -> list[Pool]:
        return [self._pool]

    async def connect(self) -> Connection:
        return await self._make()

    async def close(self) -> None:
        await self._pool.close()


class _Sentinels:
    """Who knows the primary of a service."""

    def __init__(self, url: RedisUrl) -> None:
        self._url = url
        self._hosts = list(url.hosts)

    async def connect(self) -> Connection:
        """A connection to the primary.

        :raises redis.exceptions.ConnectionError: no sentinel knows one that says so itself
        """
        for number, sentinel in enumerate(self._hosts):
            try:
                primary = await self._ask(sentinel)
                connection = await self._checked(primary) if primary else None
            except TRANSLATED:
                continue
            if connection is not None:
                # The next search begins with one that answers.
                self._hosts.insert(0, self._hosts.pop(number))
                return connection
        problem = NotConnected("no sentinel knows a primary")
        name_server(problem, self._url.server)
        raise problem

    async def _ask(self, sentinel: Host) -> Host | None:
        connection = await connect(sentinel, self._url.sentinel_login, 0, self._url.tls)
        try:
            question = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._url.service)
            [found] = await converse(connection, [question])
        finally:
            await connection.disconnect(nowait=True)
        if not isinstance(found, list):
            return None
        return found[0].decode(), int(found[1])

    async def _checked(self, primary: Host) -> Connection | None:
        connection = await connect_to(self._url, primary)
        [role] = await converse(connection, [("ROLE",)])
        # A sentinel may be behind; a server knows what it is.
        if isinstance(role, list) and role[0] == b"master":
            return connection
        await connection.disconnect(nowait=True)
        return None


class Cluster:
    """Servers that share the hash slots."""

    def __init__(self, url: RedisUrl) -> None:
        self._url = url
        self._pools: dict[Host, Pool] = {}
        self._owners: list[Host | None] = [None] * _SLOTS
        self._is_stale = True
        self._looking = asyncio.Lock()

    async def take(self, turns: Sequence[Turn]) -> list[list[Any]]:
        replies: list[list[Any]] = [[] for _ in turns]
        waiting = list(range(len(turns)))
        pause = _FIRST_PAUSE_S
        while True:
            groups = await self._by_owner(turns, waiting)
            ended = await asyncio.gather(
                *(self._take_at(owner, turns, group, replies) for owner, group in groups.items()),
                return_exceptions=True,
            )
            if problem := next((each for each in ended if each is not None), None):
                raise problem
            refusals = {n: r for n in waiting if (r := _refusal(replies[n])) is not None}
            if not refusals:
                return replies
            waiting = list(refusals)
            moved = [self._has_moved(refusal) for refusal in refusals.values()]
            if not all(moved):
                await _pause(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)

    async def _by_owner(self, turns: Sequence[Turn], numbers: list[int]) -> dict[Host, list[int]]:
        groups: dict[Host, list[int]] = {}
        for number in numbers:
            slot = _slot_of(turns[number])
            owner = None if self._is_stale else self._owners[slot]
            if owner is None:
                await self._look()
                owner = self._owners[slot]
            if owner is None:
                self._is_stale = True
                raise ClusterDownError("a slot has no owner")
            groups.setdefault(owner, []).append(number)
        return groups

    async def _take_at(
        self, owner: Host, turns: Sequence[Turn], numbers: list[int], replies: list[list[Any]]
    ) -> None:
        commands = [command for number in numbers for command in turns[number]]
        try:
            answers = iter(await self._pool(owner).converse(commands))
        except BaseException:
            # It may have been replaced.
            self._is_stale = True
            raise
        for number in numbers:
            replies[number] = [next(answers) for _ in turns[number]]
            if isinstance(replies[number][0], ClusterDownError):
                self._is_stale = True

    def _has_moved(self, refusal: ResponseError) -> bool:
        """Notes the new owner of a slot that has moved. False: it is on its way."""
        if not isinstance(refusal, MovedError):
            # ASK: the keys of the slot are on their way one by one. What a script needs may be on
            # both sides, so it waits until all are on one. It is refused as a whole, as the key it
            # declares, the base, never exists.
            return False
        if refusal.host:
            self._owners[refusal.slot_id] = (refusal.host, int(refusal.port))
        else:
            self._is_stale = True
        return True

    async def _look(self) -> None:
        """Ask any server who owns which slots."""
        async with self._looking:
            if not self._is_stale:
                return
            problem: Exception = NotConnected("no server of the cluster answers")
            for host in [*self._pools, *self._url.hosts]:
                try:
                    [ranges] = await self._pool(host).converse([("CLUSTER", "SLOTS")])
                except TRANSLATED as error:
                    problem = error
                    continue
                if isinstance(ranges, RedisError):
                    if "cluster support disabled" in str(ranges):
                        raise StorageError("the server is no part of a cluster; give redis://")
                    problem = ranges
                    continue
                await self._note(ranges, host)
                return
            name_server(problem, self._url.server)
            raise problem

    async def _note(self, ranges: list[Any], asked: Host) -> None:
        owners: list[Host | None] = [None] * _SLOTS
        for first, last, primary, *_ in ranges:
            # A server that does not know its own name is where it was asked.
            name = primary[0].decode() if primary[0] else ""
            owner = (name if name not in ("", "?") else asked[0], int(primary[1]))
            owners[first : last + 1] = [owner] * (last + 1 - first)
        self._owners = owners
        self._is_stale = False
        for host in [host for host in self._pools if host not in set(owners)]:
            await self._pools.pop(host).renew()

    def _pool(self, host: Host) -> Pool:
        pool = self._pools.get(host)
        if pool is None:
            url = self._url
            pool = self._pools[host] = Pool(lambda: connect_to(url, host), url.pool_size)
        return pool

    async def each(self) -> list[Pool]:
        await self._look()
        return [self._pool(owner) for owner in sorted({each for each in self._owners if each})]

    async def connect(self) -> Connection:
        # Messages are passed on to every server.
        problem: Exception = NotConnected("no server of the cluster answers")
        for host in [*self._pools, *self._url.hosts]:
            try:
                return await connect_to(self._url, host)
            except TRANSLATED as error:
                problem = error
        name_server(problem, self._url.server)
        raise problem

    async def close(self) -> None:
        for pool in self._pools.values():
            await pool.close()


def _slot_of(turn: Turn) -> int:
    command = turn[0]
    key = command[3] if command[0] in ("EVALSHA", "EVAL") else command[1]
    return key_slot(key if isinstance(key, bytes) else str(key).encode())


def _refusal(replies: list[Any]) -> ResponseError | None:
    first = replies[0]
    return first if isinstance(first, (AskError, TryAgainError)) else None


async def _pause(seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()
    except TimeoutError:
        return
