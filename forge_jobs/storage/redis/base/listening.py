"""Wake-ups: what scripts publish, on one connection for all bundles of this process.

A queue has a channel of its own. The listener subscribes once a waiter here asks for the queue. All
processes get what concerns the fleet.
"""

import asyncio
from collections.abc import Hashable
from contextlib import suppress
from functools import lru_cache
from typing import Any

from redis.asyncio.connection import Connection
from redis.exceptions import TimeoutError as NoAnswer

from forge_jobs.storage.listening import Listener, Waiters
from forge_jobs.storage.redis.driver.address import RedisUrl
from forge_jobs.storage.redis.driver.connections import drop
from forge_jobs.storage.redis.driver.errors import TRANSLATED, translate
from forge_jobs.storage.redis.driver.routing import servers_of
from forge_jobs.storage.redis.keys import queue_of
from forge_jobs.storage.wakeups import BEAT, FLEET, HANDOVER, LETTERS, QUEUE, WakeUps

PING_AFTER_S = 4.0
"""A connection that has been quiet for so long must answer, within as long again."""


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

    def on_more_queues(self) -> None:
        self._more_queues.set()

    def in_words(self, error: BaseException) -> str:
        return str(translate(error)) if isinstance(error, TRANSLATED) else repr(error)

    async def listen(self) -> None:
        servers = servers_of(self._url)
        async with asyncio.timeout(PING_AFTER_S):
            connection = await servers.connect()
        self._more_queues = asyncio.Event()
        heard: set[str] = set()
        subscribing: asyncio.Task[None] | None = None
        try:
            await self._subscribe_first(connection, heard)
            subscribing = asyncio.create_task(self._subscribe_more(connection, heard))
            while True:
                self._pass_on(await _next(connection), heard)
        except asyncio.CancelledError:
            # The loop ends now, so nothing would end a connection left half closed.
            with suppress(*TRANSLATED):
                await connection.disconnect()
            raise
        finally:
            if subscribing is not None:
                subscribing.cancel()
            await drop(connection)

    async def _subscribe_first(self, connection: Connection, heard: set[str]) -> None:
        keys = self._url.keys
        with self.lock:
            queues = set(self.queues)
        channels = [keys.channel, keys.first_channel, *map(keys.channel_of, queues)]
        await connection.send_command("SUBSCRIBE", *channels, check_health=False)
        for _ in channels:
            if await _read(connection) is None:
                raise NoAnswer
        heard |= queues
        self.found(heard)

    async def _subscribe_more(self, connection: Connection, heard: set[str]) -> None:
        """Subscribe to queues that come up. The replies are read with the messages."""
        asked = set(heard)
        while True:
            self._more_queues.clear()
            with self.lock:
                new = self.queues - asked
            if new:
                asked |= new
                channels = map(self._url.keys.channel_of, new)
                await connection.send_command("SUBSCRIBE", *channels, check_health=False)
            else:
                self.end_waits(heard)
            await self._more_queues.wait()

    def _pass_on(self, message: Any, heard: set[str]) -> None:
        if not isinstance(message, list) or len(message) < 3:
            return
        kind, channel, text = message
        # Any program may publish anything there.
        queue = self._queue_of(channel.decode(errors="replace"))
        if kind == b"subscribe":
            if queue is not None:
                heard.add(queue)
                # Something may have been published before.
                self.wakeups.wake([QUEUE + queue])
                self.end_waits(heard)
        elif queue is not None:
            self.wakeups.wake([QUEUE + queue])
        else:
            topics = (_topic(topic) for topic in text.decode(errors="replace").split("\n"))
            self.wakeups.wake([topic for topic in topics if topic is not None])

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


async def _ask(connection: Connection, *command: str) -> Any:
    await connection.send_command(*command, check_health=False)
    reply = await _read(connection)
    if reply is None:
        raise NoAnswer
    return reply


async def _next(connection: Connection) -> Any:
    """Read the next message. A quiet connection must prove that it lives."""
    message = await _read(connection)
    return await _ask(connection, "PING") if message is None else message


async def _read(connection: Connection) -> Any:
    return await connection.read_response(timeout=PING_AFTER_S, disconnect_on_error=False)
