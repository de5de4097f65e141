"""A cluster: servers that share the hash slots."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

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

from forge_jobs.errors import StorageError
from forge_jobs.outages import Pauses
from forge_jobs.storage.redis.driver.address import Host, RedisUrl, in_words
from forge_jobs.storage.redis.driver.connections import Pool, Turn, connect_to, drop
from forge_jobs.storage.redis.driver.errors import TRANSLATED, SlotsDisputed, name_server
from forge_jobs.storage.redis.driver.hosts import Hosts
from forge_jobs.storage.wakeups import until_set

_PAUSES = Pauses(0.02, 0.5)
_MOST_MOVES = 8
"""So often in one call a server may name another one as the owner of a slot."""

_SLOTS = 16_384

_SILENT_S = 0.25
"""How long a server that was silent the last time delays calls that can do without the server."""


class Cluster:
    """Servers that share the hash slots."""

    def __init__(self, url: RedisUrl) -> None:
        self._url = url
        self._pools: dict[Host, Pool] = {}
        self._owners: list[Host | None] = [None] * _SLOTS
        self._is_stale = True
        self._looking = asyncio.Lock()
        # In turn: a server that is cut off from the others goes on telling what was.
        self._hosts = Hosts(url.hosts, url.attempt, in_turn=True)
        self._silent: set[Host] = set()

    async def take(self, turns: Sequence[Turn]) -> list[list[Any]]:
        replies: list[list[Any]] = [[] for _ in turns]
        waiting = list(range(len(turns)))
        failures = moves = 0
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
            moves += any(moved)
            if moves > _MOST_MOVES:
                self._is_stale = True
                raise SlotsDisputed("a slot has been moved on and on")
            if moves != 1 or not all(moved):
                failures += 1
                await until_set(asyncio.Event(), _PAUSES.after(failures))

    async def take_some(self, turns: Sequence[Turn], *, wait: bool = True) -> list[list[Any]]:
        groups: dict[Host | None, list[int]] = {}
        for number, owner in enumerate(await self._owners_of(turns)):
            groups.setdefault(owner, []).append(number)
        taken = await asyncio.gather(
            *(
                self._take_group(owner, [turns[n] for n in group], wait=wait)
                for owner, group in groups.items()
            )
        )
        replies: list[list[Any]] = [[] for _ in turns]
        for group, found in zip(groups.values(), taken, strict=True):
            for number, reply in zip(group, found, strict=True):
                replies[number] = reply
        return replies

    async def _owners_of(self, turns: Iterable[Turn]) -> list[Host | None]:
        if self._is_stale:
            await self._look()
        owners = [self._owners[_slot_of(turn)] for turn in turns]
        if None in owners:
            self._is_stale = True
        return owners

    async def _take_group(
        self, owner: Host | None, turns: Sequence[Turn], *, wait: bool
    ) -> list[list[Any]]:
        """Return the replies of one server, or the server's error for each command."""
        is_silent = owner in self._silent
        if is_silent and not wait:
            return [[TimeoutError()] * len(turn) for turn in turns]
        limit = _SILENT_S if is_silent else self._url.timeout / 2
        problem: Exception = ClusterDownError("a slot has no owner")
        try:
            if owner is not None:
                async with asyncio.timeout(limit):
                    return await self.take(turns)
        except TRANSLATED as error:
            problem = error
            if owner is not None and isinstance(error, TimeoutError):
                self._silent.add(owner)
                name_server(error, f"the server at {in_words((owner,))}")
        return [[problem] * len(turn) for turn in turns]

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
            # The server may have been replaced.
            self._is_stale = True
            self._hosts.put_last(owner)
            raise
        self._silent.discard(owner)
        for number in numbers:
            replies[number] = [next(answers) for _ in turns[number]]
            if isinstance(replies[number][0], ClusterDownError):
                self._is_stale = True
                self._hosts.put_last(owner)

    def _has_moved(self, refusal: ResponseError) -> bool:
        """Note the new owner of a slot that has moved. False: the slot is on the way."""
        if not isinstance(refusal, MovedError):
            # ASK: the keys of the slot are on their way one by one. What a script needs may be on
            # both sides, so the call waits until all are on one. The server refuses the whole call,
            # because the base, which the call declares as a key, never exists.
            return False
        if refusal.host:
            self._owners[refusal.slot_id] = (refusal.host, int(refusal.port))
        else:
            self._is_stale = True
        return True

    async def _look(self) -> None:
        """Ask which server owns which slots."""
        async with self._looking:
            if not self._is_stale:
                return
            try:
                ranges, asked = await self._hosts.ask(self._slots_told_by)
            except TRANSLATED as error:
                name_server(error, self._url.server)
                raise
            await self._note(ranges, asked)

    async def _slots_told_by(self, host: Host) -> tuple[list[Any], Host]:
        [ranges] = await self._pool(host).converse([("CLUSTER", "SLOTS")])
        if not isinstance(ranges, RedisError):
            return ranges, host
        if "cluster support disabled" in str(ranges):
            raise StorageError("the server is no part of a cluster; give redis://")
        raise ranges

    async def _note(self, ranges: list[Any], asked: Host) -> None:
        owners: list[Host | None] = [None] * _SLOTS
        replicas: list[Host] = []
        for first, last, *nodes in ranges:
            # A server that does not know its own name is at the address that was asked.
            named = [(node[0].decode() if node[0] else "", int(node[1])) for node in nodes]
            owner, *others = [
                (name if name not in ("", "?") else asked[0], port) for name, port in named
            ]
            owners[first : last + 1] = [owner] * (last + 1 - first)
            replicas += others
        self._owners = owners
        self._is_stale = False
        known = {owner for owner in owners if owner is not None}
        self._silent &= known
        self._hosts.replace([*sorted(known), *replicas, *self._url.hosts])
        for host in [host for host in self._pools if host not in known]:
            await self._pools.pop(host).renew()

    async def _has_left(self, host: Host) -> bool:
        # A server that has been frozen knows only itself.
        self._hosts.put_last(host)
        self._is_stale = True
        await self._look()
        return host not in self._owners

    def _pool(self, host: Host) -> Pool:
        pool = self._pools.get(host)
        if pool is None:
            url = self._url
            pool = Pool(lambda: connect_to(url, host), url.pool_size, self._has_left)
            self._pools[host] = pool
        return pool

    async def each(self) -> list[Pool]:
        await self._look()
        return [self._pool(owner) for owner in sorted({each for each in self._owners if each})]

    def pools(self) -> Sequence[Pool]:
        return list(self._pools.values())

    async def owners_of(self, keys: Iterable[str]) -> list[Host | None]:
        """Return the server of each key or sharded channel, None where no server is known."""
        return await self._owners_of([[("", key)] for key in keys])

    def doubt(self, host: Host) -> None:
        """Ask again which server has which slots, and this one last."""
        self._is_stale = True
        self._hosts.put_last(host)

    async def connect(self) -> Connection:
        # Messages are passed on to every server.
        try:
            return await self._hosts.ask(lambda host: connect_to(self._url, host), discard=drop)
        except TRANSLATED as error:
            name_server(error, self._url.server)
            raise

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
