"""Sharded channels of a cluster: a message stays with the server of its slot and the replicas.

So a process has one connection to each server that has a channel of the process. A server that is
lost costs the messages of its own channels.
"""

import asyncio
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol

from redis.asyncio.connection import Connection
from redis.exceptions import MovedError, NoPermissionError

from forge_jobs.clock import SystemClock
from forge_jobs.outages import Pauses
from forge_jobs.storage.redis.driver import messages
from forge_jobs.storage.redis.driver.address import Host, RedisUrl
from forge_jobs.storage.redis.driver.cluster import Cluster
from forge_jobs.storage.redis.driver.connections import connect_to, dropped_after
from forge_jobs.storage.redis.driver.errors import TRANSLATED
from forge_jobs.storage.wakeups import until_set

_PAUSES = Pauses(0.1, 2.0)
_LOOK_WITHIN_S = 5.0
_elapsed = SystemClock().elapsed


class Hears(Protocol):
    """Receives what sharded channels bring."""

    def subscribed(self, channel: str) -> None:
        """Messages of the channel arrive from now on. Some may have been missed before."""

    def received(self, channel: str) -> None:
        """Pass a message of the channel on."""

    def shard_lost(self, channels: Iterable[str], error: BaseException) -> None:
        """Note that channels are not heard for now, until :meth:`subscribed` names them."""


class ShardedChannels:
    """Subscriptions of one process, each at the server that has the channel's slot.

    :param wanted: the channels to hear. Call :meth:`look_again` when there are more
    """

    def __init__(self, url: RedisUrl, wanted: Callable[[], Iterable[str]], hears: Hears) -> None:
        self._url = url
        self._cluster = Cluster(url)
        self._wanted = wanted
        self._hears = hears
        self._at: dict[Host, _Subscriptions] = {}
        self._failures: dict[Host, int] = {}
        self._rests_until: dict[Host, float] = {}
        self._changed = asyncio.Event()

    def look_again(self) -> None:
        """Subscribe to what is wanted now."""
        self._changed.set()

    async def run(self) -> None:
        """Keep the subscriptions until cancelled.

        :raises redis.exceptions.NoPermissionError: the user may not subscribe to sharded channels
        """
        failures = 0
        try:
            while True:
                self._changed.clear()
                self._let_go()
                try:
                    pause = await self._place()
                    failures = 0
                except TRANSLATED as error:
                    failures += 1
                    pause = _PAUSES.after(failures)
                    self._hears.shard_lost((), error)
                await until_set(self._changed, pause)
        finally:
            await self._end()

    def _let_go(self) -> None:
        """Forget the servers whose connections have ended."""
        for host in [host for host, each in self._at.items() if each.task.done()]:
            ended = self._at.pop(host)
            self._cluster.doubt(host)
            error = ended.task.exception()
            if isinstance(error, NoPermissionError):
                raise error
            failures = 1 if ended.heard else self._failures.get(host, 0) + 1
            self._failures[host] = failures
            self._rests_until[host] = _elapsed() + _PAUSES.after(failures)
            if error is not None:
                self._hears.shard_lost(ended.asked, error)

    async def _place(self) -> float:
        """Subscribe to channels that are wanted and not asked for.

        :returns: seconds until a look at those that could not be placed, for ever if there are none
        """
        asked = {channel for each in self._at.values() for channel in each.asked}
        missing = [channel for channel in self._wanted() if channel not in asked]
        async with asyncio.timeout(_LOOK_WITHIN_S):
            owners = await self._cluster.owners_of(missing)
        rest: list[float] = []
        more: dict[Host, list[str]] = {}
        now = _elapsed()
        for channel, owner in zip(missing, owners, strict=True):
            pause = _PAUSES.at_most(1) if owner is None else self._rests_until.get(owner, 0.0) - now
            if owner is None or pause > 0:
                rest.append(pause)
            else:
                more.setdefault(owner, []).append(channel)
        for owner, channels in more.items():
            if owner not in self._at:
                self._at[owner] = _Subscriptions(self._url, owner, self._hears, self.look_again)
            self._at[owner].add(channels)
        return min(rest, default=math.inf)

    async def _end(self) -> None:
        tasks = [each.task for each in self._at.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._cluster.close()


class _Subscriptions:
    """The connection to one server, and what is asked for there."""

    def __init__(self, url: RedisUrl, host: Host, hears: Hears, ended: Callable[[], None]) -> None:
        self.asked: set[str] = set()
        self.heard = False
        """A message has come, or an answer to a subscription."""
        self._url = url
        self._host = host
        self._hears = hears
        self._more = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._run())
        self.task.add_done_callback(lambda _: ended())

    def add(self, channels: Iterable[str]) -> None:
        """Subscribe to more."""
        self.asked |= set(channels)
        self._more.set()

    async def _run(self) -> None:
        connection = await connect_to(self._url, self._host)
        async with dropped_after(connection):
            asking = asyncio.create_task(self._ask(connection))
            try:
                while True:
                    self._pass_on(await messages.next_message(connection))
            finally:
                asking.cancel()

    async def _ask(self, connection: Connection) -> None:
        sent: set[str] = set()
        # Who reads notices that the connection has ended.
        with suppress(RuntimeError, *TRANSLATED):
            while True:
                self._more.clear()
                for channel in self.asked - sent:
                    # One by one: each may have a slot of its own.
                    await connection.send_command("SSUBSCRIBE", channel, check_health=False)
                    sent.add(channel)
                await self._more.wait()

    def _pass_on(self, message: Any) -> None:
        if not isinstance(message, list) or len(message) < 3:
            return
        kind, channel = message[0], message[1].decode(errors="replace")
        self.heard = True
        if kind == b"ssubscribe":
            self._hears.subscribed(channel)
        elif kind == b"smessage":
            self._hears.received(channel)
        elif kind == b"sunsubscribe":
            # The server has given the slot away. The connection begins anew, which costs little.
            raise MovedError(f"0 {self._host[0]}:{self._host[1]}")
