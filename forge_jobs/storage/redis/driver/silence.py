"""Calls that a server does not answer, while another may have taken its place."""

import asyncio
from collections.abc import Awaitable, Callable

from redis.asyncio.connection import Connection

from forge_jobs.errors import StorageError
from forge_jobs.storage.redis.driver.address import Host
from forge_jobs.storage.redis.driver.errors import TRANSLATED
from forge_jobs.storage.wakeups import until_set

_DOUBT_S = 1.0
"""A call that has been silent for so long may be one to a server that was replaced."""

_ASK_EVERY_S = 0.5


class SilentCalls:
    """The calls under way to one server, and an eye on those that are silent.

    A frozen server takes what is sent and never answers. Once another server has that place, no
    call has to wait for the whole time limit.
    """

    def __init__(self, has_left: Callable[[Host], Awaitable[bool]]) -> None:
        self._has_left = has_left
        self._begun: dict[Connection, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._watch: asyncio.Task[None] | None = None

    def begun(self, connection: Connection) -> None:
        """A call begins."""
        loop = asyncio.get_running_loop()
        self._begun[connection] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(_DOUBT_S, self._look)

    def ended(self, connection: Connection) -> None:
        """The call has ended, well or not."""
        self._begun.pop(connection, None)

    async def close(self) -> None:
        """Look no more. No call may be under way."""
        if self._timer is not None:
            self._timer.cancel()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])

    def _look(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        if self._silent() and (self._watch is None or self._watch.done()):
            self._watch = loop.create_task(self._until_none_is_silent())
        if self._begun:
            self._timer = loop.call_later(_DOUBT_S, self._look)

    def _silent(self) -> list[Connection]:
        since = asyncio.get_running_loop().time() - _DOUBT_S
        return [connection for connection, begun in self._begun.items() if begun <= since]

    async def _until_none_is_silent(self) -> None:
        while silent := self._silent():
            for host in {(connection.host, connection.port) for connection in silent}:
                if await self._is_replaced(host):
                    for connection in silent:
                        if (connection.host, connection.port) == host and connection._writer:
                            # The call sees the end of the connection.
                            connection._writer.transport.abort()
            await until_set(asyncio.Event(), _ASK_EVERY_S)

    async def _is_replaced(self, host: Host) -> bool:
        try:
            return await self._has_left(host)
        except (*TRANSLATED, StorageError):
            return False
