"""Wake-ups on Postgres: notifications, and polling while none arrive.

Every few seconds the listener sends itself a notification. When the notification does not arrive,
the connection has gone silent, or a pooler passes no notifications on. Until one arrives again,
waiters poll.
"""

import asyncio
import secrets
from collections.abc import Hashable
from typing import Any

from forge_jobs.outages import Pauses
from forge_jobs.storage.listening import Listener, Waiters
from forge_jobs.storage.sql.postgres.announcing import topics_in
from forge_jobs.storage.sql.postgres.driver.connecting import PostgresOptions, connect
from forge_jobs.storage.sql.postgres.driver.errors import DRIVER_ERRORS, translate
from forge_jobs.storage.wakeups import WakeUps, until_set

PING_EVERY_S = 6.0
PING_ANSWER_S = 3.0
"""Together the longest time for which a silent listener goes unnoticed."""

POLL_EVERY_S = 1.0
_START_S = 3.0


def waiters_of(options: PostgresOptions, store_id: str, channel: str) -> Waiters:
    """Return the waiters of one bundle, which poll where the URL allows no listener."""

    def listener(key: Hashable, wakeups: WakeUps) -> Listener:
        return PostgresListener(options, channel, key, wakeups)

    return Waiters(
        store_id,
        (store_id, options.dsn, options.server),
        listener if options.listens else None,
        polls_every=POLL_EVERY_S,
        starts_within=_START_S,
    )


class PostgresListener(Listener):
    """The connection of one process that listens for one store."""

    pauses = Pauses(1.0, 8.0)
    wakes_when_lost = True

    def __init__(
        self, options: PostgresOptions, channel: str, key: Hashable, wakeups: WakeUps
    ) -> None:
        super().__init__(key, wakeups)
        self._options = options
        self._channel = channel
        self._own_channel = f"forge_jobs_{secrets.token_hex(8)}"
        self._echo = asyncio.Event()

    def in_words(self, error: BaseException) -> str:
        return str(translate(error)) if isinstance(error, DRIVER_ERRORS) else repr(error)

    async def listen(self) -> None:
        connection = await connect(self._options, direct=True)
        try:
            self._echo = asyncio.Event()
            await connection.add_listener(self._channel, self._hear)
            await connection.add_listener(self._own_channel, self._hear_echo)
            while True:
                await self._ping(connection)
                self.found()
                await until_set(asyncio.Event(), PING_EVERY_S)
        finally:
            try:
                await connection.close(timeout=1)
            except DRIVER_ERRORS:
                connection.terminate()

    async def _ping(self, connection: Any) -> None:
        self._echo.clear()
        async with asyncio.timeout(PING_ANSWER_S):
            await connection.execute(f'NOTIFY "{self._own_channel}"')
            await self._echo.wait()

    def _hear(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        self.wakeups.wake(topics_in(payload))

    def _hear_echo(self, _connection: Any, _pid: int, _channel: str, _payload: str) -> None:
        self._echo.set()
