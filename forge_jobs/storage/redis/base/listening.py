"""Wake-ups: what scripts publish, on one connection for all bundles of this process.

A queue has a channel of its own. The listener subscribes once a waiter here asks for the queue. All
processes get what concerns the fleet.

In a cluster the channel of a queue is a sharded one, with connections of its own: see
``driver/sharded.py``. Programs of older releases, and users without the right, publish to the plain
channel of the same name, so the listener hears both.
"""

import asyncio
from collections.abc import Hashable, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any

from redis.asyncio.connection import Connection
from redis.exceptions import NoPermissionError

from forge_jobs.outages import Outage
from forge_jobs.reports import reporter
from forge_jobs.storage.listening import Listener, Waiters
from forge_jobs.storage.redis.driver import messages
from forge_jobs.storage.redis.driver.address import RedisUrl
from forge_jobs.storage.redis.driver.connections import dropped_after
from forge_jobs.storage.redis.driver.errors import TRANSLATED, translate
from forge_jobs.storage.redis.driver.routing import servers_of
from forge_jobs.storage.redis.driver.sharded import ShardedChannels
from forge_jobs.storage.redis.keys import queue_of
from forge_jobs.storage.wakeups import (
    BEAT,
    FLEET,
    HANDOVER,
    LETTERS,
    QUEUE,
    WakeUps,
    until_set,
)

logger = reporter(__name__)


def waiters_of(url: RedisUrl, store_id: str) -> Waiters:
    """Return the waiters of one bundle. With ``wake=poll`` only this process wakes them."""

    def listener(key: Hashable, wakeups: WakeUps) -> Listener:
        return RedisListener(url, key, wakeups)

    return Waiters(store_id, store_id, listener if url.wakes else None)


class RedisListener(Listener):
    """The subscriptions of this process to the channels of one store."""

    def __init__(self, url: RedisUrl, key: Hashable, wakeups: WakeUps) -> None:
        super().__init__(key, wakeups)
        self._url = url
        self._more_queues = asyncio.Event()
        self._heard: set[str] = set()
        self._sharded: ShardedChannels | None = None
        self._heard_at_shards: set[str] = set()
        self._shard_outage = Outage()

    def on_more_queues(self) -> None:
        self._more_queues.set()
        if self._sharded is not None:
            self._sharded.look_again()

    def in_words(self, error: BaseException) -> str:
        return str(translate(error)) if isinstance(error, TRANSLATED) else repr(error)

    async def listen(self) -> None:
        servers = servers_of(self._url)
        async with asyncio.timeout(messages.PING_AFTER_S):
            connection = await servers.connect()
        self._more_queues = asyncio.Event()
        self._heard = set()
        self._heard_at_shards = set()
        tasks: list[asyncio.Task[None]] = []
        try:
            async with dropped_after(connection):
                if self._url.kind == "cluster":
                    self._sharded = ShardedChannels(self._url, self._sharded_channels, self)
                    tasks.append(asyncio.create_task(self._listen_to_shards(self._sharded)))
                await self._subscribe_first(connection)
                tasks.append(asyncio.create_task(self._subscribe_more(connection)))
                while True:
                    self._pass_on(await messages.next_message(connection))
        finally:
            self._sharded = None
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    # -- plain channels ----------------------------------------------------------------------

    async def _subscribe_first(self, connection: Connection) -> None:
        keys = self._url.keys
        with self.lock:
            queues = set(self.queues)
        channels = [keys.channel, keys.first_channel, *map(keys.channel_of, queues)]
        await connection.send_command("SUBSCRIBE", *channels, check_health=False)
        for _ in channels:
            await messages.reply(connection)
        self._heard |= queues
        self.found(self._heard_everywhere())

    async def _subscribe_more(self, connection: Connection) -> None:
        """Subscribe to queues that come up. The replies are read with the messages."""
        asked = set(self._heard)
        # Who reads notices that the connection has ended.
        with suppress(RuntimeError, *TRANSLATED):
            while True:
                self._more_queues.clear()
                with self.lock:
                    new = self.queues - asked
                if new:
                    asked |= new
                    channels = map(self._url.keys.channel_of, new)
                    await connection.send_command("SUBSCRIBE", *channels, check_health=False)
                else:
                    self.end_waits(self._heard_everywhere())
                await self._more_queues.wait()

    def _pass_on(self, message: Any) -> None:
        if not isinstance(message, list) or len(message) < 3:
            return
        kind, channel, text = message
        # Any program may publish anything there.
        queue = self._queue_of(channel.decode(errors="replace"))
        if kind == b"subscribe":
            if queue is not None:
                self._heard.add(queue)
                # Something may have been published before.
                self.wakeups.wake([QUEUE + queue])
                self.end_waits(self._heard_everywhere())
        elif queue is not None:
            self.wakeups.wake([QUEUE + queue])
        else:
            topics = (_topic(topic) for topic in text.decode(errors="replace").split("\n"))
            self.wakeups.wake([topic for topic in topics if topic is not None])

    def _heard_everywhere(self) -> set[str]:
        return self._heard if self._sharded is None else self._heard & self._heard_at_shards

    # -- sharded channels of a cluster ---------------------------------------------------------

    async def _listen_to_shards(self, sharded: ShardedChannels) -> None:
        failures = 0
        while True:
            try:
                await sharded.run()
            except NoPermissionError as error:
                logger.info(
                    "wake-ups of queues go by way of every server of the cluster: %s",
                    self.in_words(error),
                )
                self._sharded = None
                self.end_waits(self._heard)
                return
            except Exception as error:  # after any error beats find the work meanwhile
                failures += 1
                self.shard_lost((), error)
            await until_set(asyncio.Event(), self.pauses.after(failures))

    def _sharded_channels(self) -> list[str]:
        with self.lock:
            return [self._url.keys.channel_of(queue) for queue in self.queues]

    def subscribed(self, channel: str) -> None:
        """See ``Hears``."""
        queue = self._queue_of(channel)
        if queue is None:
            return
        self._heard_at_shards.add(queue)
        # Something may have been published before.
        self.wakeups.wake([QUEUE + queue])
        self.end_waits(self._heard_everywhere())
        with self.lock:
            has_all = self.queues <= self._heard_at_shards
        if has_all and self._shard_outage.is_over():
            logger.info("wake-ups arrive from every server of the cluster again")

    def received(self, channel: str) -> None:
        """See ``Hears``."""
        if (queue := self._queue_of(channel)) is not None:
            self.wakeups.wake([QUEUE + queue])

    def shard_lost(self, channels: Iterable[str], error: BaseException) -> None:
        """See ``Hears``."""
        lost = {queue for channel in channels if (queue := self._queue_of(channel)) is not None}
        self._heard_at_shards -= lost
        # The queues' notes of who waits may be lost too.
        self.silences += bool(lost)
        if self._shard_outage.is_new():
            logger.warning(
                "no wake-ups arrive from a server of the cluster, and beats find the work of its "
                "queues until they do: %s",
                self.in_words(error),
            )

    def _queue_of(self, channel: str) -> str | None:
        """Return the queue of a channel, None for the channels of the fleet."""
        own, _, tag = channel.partition(":{")
        return queue_of(f"{{{tag}") if own == self._url.keys.channel and tag else None


@lru_cache(maxsize=1000)
def _topic(text: str) -> str | None:
    """Return the topic that a text means, None for a text of another program."""
    if text in (BEAT, FLEET, HANDOVER, LETTERS):
        return text
    kind, _, base = text.partition(" ")
    return QUEUE + queue_of(base) if kind == "queue" and base else None
