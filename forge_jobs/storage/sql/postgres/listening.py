"""Waits for work on Postgres: a connection that listens, and polling while listening fails.

The listener has a thread and an event loop, so that one listener serves the bundles of all event
loops of the process and no busy loop can delay it. Every few seconds the listener sends itself a
notification. When the notification does not arrive, the connection has gone silent, or a pooler
passes no notifications on. Until one arrives again, waiters poll.
"""

import asyncio
import secrets
import threading
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import anyio.to_thread

from forge_jobs.clock import SystemClock
from forge_jobs.engine_threads import EngineThread
from forge_jobs.model.queues import Wake
from forge_jobs.reports import reporter
from forge_jobs.storage.protocols import StoreHealth
from forge_jobs.storage.sql.postgres.announcing import topics_in
from forge_jobs.storage.sql.postgres.driver.connecting import PostgresOptions, connect
from forge_jobs.storage.sql.postgres.driver.errors import DRIVER_ERRORS
from forge_jobs.storage.wakeups import (
    EVERYTHING,
    Inboxes,
    WakeUps,
    topics_of,
    until_set,
    wakeups_of,
)

logger = reporter(__name__)

PING_EVERY_S = 6.0
PING_ANSWER_S = 3.0
"""Together the longest time for which a silent listener goes unnoticed."""

POLL_EVERY_S = 1.0
_RETRY_S = 1.0
_LONGEST_RETRY_S = 8.0
_START_S = 3.0
_elapsed = SystemClock().elapsed


class Waiters:
    """``wait_for_work`` and ``wake`` of one bundle."""

    def __init__(self, options: PostgresOptions, store_id: str, channel: str) -> None:
        self._options = options
        self._store_id = store_id
        self._channel = channel
        self._wakeups = wakeups_of(store_id)
        self._inboxes = Inboxes(self._wakeups)
        self._inboxes.open()
        self._listener: Listener | None = None

    @property
    def is_listening(self) -> bool:
        """True while notifications arrive. Otherwise waiters poll."""
        return self._listener is not None and self._listener.works

    def health(self) -> StoreHealth:
        """Return whether the listener works now, and how often it has been interrupted."""
        silences = 0 if self._listener is None else self._listener.silences
        return StoreHealth(wakes=self.is_listening, silences=silences)

    def wake_for(self, topics: Sequence[str]) -> set[str]:
        """Wake waiters for a commit of this process, whose notification the listener skips.

        :returns: the topics that a waiter of this process is waiting for now
        """
        return self._wakeups.wake(topics)

    def wake(self, wake: Wake) -> None:
        """See ``JobStore.wake``."""
        self._wakeups.wake(topics_of(wake))

    async def wait(self, queues: frozenset[str], at_most: timedelta, waiter: object | None) -> Wake:
        """See ``JobStore.wait_for_work``."""
        inbox = self._inboxes.of(waiter)
        event = inbox.listen(queues)
        try:
            await self._started(event)
            end = _elapsed() + at_most.total_seconds()
            while True:
                event.clear()
                if wake := inbox.take(queues):
                    return wake
                now = _elapsed()
                if not self.is_listening and now >= inbox.poll_at > 0:
                    inbox.poll_at = now + POLL_EVERY_S
                    return Wake(queues=queues, handover=True)
                inbox.poll_at = inbox.poll_at or now + POLL_EVERY_S
                if now >= end:
                    return Wake()
                until = end if self.is_listening else min(end, inbox.poll_at)
                await until_set(event, until - now)
        finally:
            inbox.unlisten(event)

    async def _started(self, event: asyncio.Event) -> None:
        """Wait for the listener's first success or failure, which wakes waiters."""
        if not self._options.listens:
            return
        if self._listener is None:
            self._listener = listener_of(self._store_id, self._options, self._channel)
            self._listener.join(self)
        until = _elapsed() + _START_S
        while not self._listener.is_settled and (left := until - _elapsed()) > 0:
            event.clear()
            if not self._listener.is_settled:
                await until_set(event, left)

    async def close(self) -> None:
        """Wait for nothing any more. The last bundle of the process ends the listener."""
        self._inboxes.close()
        if self._listener is not None:
            await self._listener.leave(self)


class Listener:
    """The connection of one process that listens for one store."""

    def __init__(self, wakeups: WakeUps, options: PostgresOptions, channel: str) -> None:
        self.works = False
        self.is_settled = False
        self.silences = 0
        self._wakeups = wakeups
        self._options = options
        self._channel = channel
        self._own_channel = f"forge_jobs_{secrets.token_hex(8)}"
        self._lock = threading.Lock()
        self._users: set[int] = set()
        self._thread: EngineThread | None = None
        self._stop = asyncio.Event()
        self._echo = asyncio.Event()
        self._is_logged = False

    def join(self, user: object) -> None:
        """Listen for one more bundle."""
        with self._lock:
            self._users.add(id(user))
            if self._thread is None:
                self._thread = EngineThread(
                    "forge-jobs-listener",
                    self._main,
                    on_failure=self._lost,
                    longest_pause=_LONGEST_RETRY_S,
                )
                self._thread.start()

    async def leave(self, user: object) -> None:
        """Listen for one bundle less. After the last one the listener stops."""
        with self._lock:
            self._users.discard(id(user))
            thread = self._thread
            if self._users or thread is None:
                return
            self._thread = None
            thread.over()
            thread.call_soon(self._stop.set)
        await anyio.to_thread.run_sync(thread.join, 5.0)

    async def _main(self) -> None:
        thread, stop = self._thread, asyncio.Event()
        self._stop = stop
        pause = _RETRY_S
        while thread is not None and not (thread.is_over or stop.is_set()):
            try:
                await self._listen(stop)
            except Exception as error:  # after any error the waiters poll meanwhile
                pause = _RETRY_S if self.works else min(2 * pause, _LONGEST_RETRY_S)
                self._lost(error)
                await until_set(stop, pause)
        if self._thread in (None, thread):
            self.works = self.is_settled = False

    async def _listen(self, stop: asyncio.Event) -> None:
        connection = await connect(self._options, direct=True)
        try:
            await connection.add_listener(self._channel, self._hear)
            await connection.add_listener(self._own_channel, self._hear_echo)
            while not stop.is_set():
                await self._ping(connection)
                self._found()
                await until_set(stop, PING_EVERY_S)
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

    def _found(self) -> None:
        if self.works:
            return
        if self._is_logged:
            logger.info("notices from the database come through again")
            self._is_logged = False
        self.works = self.is_settled = True
        # No other wake-up will come for earlier commits.
        self._wakeups.wake([EVERYTHING])

    def _lost(self, error: BaseException) -> None:
        if not self._is_logged:
            self._is_logged = True
            logger.warning(
                "no notices come from the database (%s); looking for work every %g s instead",
                type(error).__name__,
                POLL_EVERY_S,
            )
        if self.works or not self.is_settled:
            self.works = False
            self.is_settled = True
            self.silences += 1
            self._wakeups.wake([EVERYTHING])

    def _hear(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        self._wakeups.wake(topics_in(payload))

    def _hear_echo(self, _connection: Any, _pid: int, _channel: str, _payload: str) -> None:
        self._echo.set()


_all: "weakref.WeakValueDictionary[tuple[str, str, str], Listener]" = weakref.WeakValueDictionary()
_all_lock = threading.Lock()


def listener_of(store_id: str, options: PostgresOptions, channel: str) -> Listener:
    """Return the one listener of this process for that store, shared while a bundle keeps it."""
    with _all_lock:
        key = (store_id, options.dsn, options.server)
        found = _all.get(key)
        if found is None:
            found = _all[key] = Listener(wakeups_of(store_id), options, channel)
        return found
