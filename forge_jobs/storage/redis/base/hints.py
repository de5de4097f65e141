"""Wake-ups that no script publishes: of changes, for processes that watch jobs."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from forge_jobs.errors import StorageError
from forge_jobs.storage.redis.base.places import KnownOfStore
from forge_jobs.storage.redis.driver.address import RedisUrl
from forge_jobs.storage.redis.driver.connections import Command
from forge_jobs.storage.redis.keys import queue_tag
from forge_jobs.storage.wakeups import QUEUE, WATCHED


class Hints:
    """Publishes topics of queues. A lost topic costs the time until a watcher looks by itself.

    :param known: how the channels of queues are published to
    :param commands: runs plain commands
    """

    def __init__(
        self,
        url: RedisUrl,
        known: KnownOfStore,
        commands: Callable[[Sequence[Command]], Awaitable[list[Any]]],
    ) -> None:
        self._url = url
        self._known = known
        self._commands = commands
        self._sending: set[asyncio.Task[None]] = set()

    def send(self, topics: Sequence[str]) -> None:
        """Publish topics to other processes, without waiting."""
        if not self._url.wakes:
            return
        channel = self._url.keys.channel
        commands: list[Command] = []
        for topic in topics:
            tag = f"{{{queue_tag(topic.removeprefix(QUEUE))}}}"
            if topic.startswith(WATCHED):
                # For every process: each may change jobs of the queue.
                commands.append(("PUBLISH", channel, f"queue {tag}"))
            else:
                commands.append((self._known.publish, f"{channel}:{tag}", ""))
        sending = asyncio.ensure_future(self._publish(commands))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _publish(self, commands: Sequence[Command]) -> None:
        with suppress(StorageError):
            await self._commands(commands)
