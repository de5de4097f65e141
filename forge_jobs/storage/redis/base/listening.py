"""Wake-ups: what scripts publish, heard on one connection for all bundles of this process.

A queue has a channel of its own, heard once somebody here waits for the queue. What concerns the
fleet comes to every process.

The connection has a thread and an event loop of its own, since bundles live in several. It is
made when somebody first waits, so a program that only enqueues has none.
"""

import asyncio
import threading
import weakref
from collections.abc import Collection
from concurrent.futures import Future
from contextlib import suppress
from functools import lru_cache
from typing import Any

from redis.asyncio.connection import Connection
from redis.exceptions import TimeoutError as NoAnswer

from forge_jobs.clock import SystemClock
from forge_jobs.engine_threads import EngineThread
from forge_jobs.model.queues import Wake
from forge_jobs.reports import reporter
from forge_jobs.storage.protocols.bundle import StoreHealth
from forge_jobs.storage.redis.driver.address import RedisUrl
from forge_jobs.storage.redis.driver.connections import drop
from forge_jobs.storage.redis.driver.errors import TRANSLATED, translate
from forge_jobs.storage.redis.driver.routing import servers_of
from forge_jobs.storage.redis.keys import queue_of
from forge_jobs.storage.wakeups import (
    BEAT,
    EVERYTHING,
    FLEET,
    HANDOVER,
    LETTERS,
    QUEUE,
    Inboxes,
    WakeUps,
    topics_of,
    until_set,
    wakeups_of,
)

logger = reporter(__name__)

PING_AFTER_S = 4.0
"""A connection that has been quiet for so long must answer, within as long again."""

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_START_S = 1.0

_elapsed = SystemClock().elapsed


class Ear:
    """What one bundle hears.

    :param url: with ``wakes`` False only this process's own rings are heard
    """

    def __init__(self, url: RedisUrl, store_id: str) -> None:
        self._wakeups = wakeups_of(store_id)
        self._inboxes = Inboxes(self._wakeups)
        self._inboxes.open()
        self._listener = listener_of(url, store_id, self._wakeups) if url.wakes else None
        self._has_started = False
        self._silences_before = 0
        self._waited_for: set[str] = set()

    async def wait(self, queues: frozenset[str], at_most: float, waiter: object | None) -> Wake:
        """The hints for ``waiter``, an empty Wake after ``at_most`` seconds.

        Those that come after :meth:`listen`, and some from before.
        """
        inbox = self._inboxes.of(waiter)
        event = inbox.listen(queues)
        try:
            end = _elapsed() + at_most
            while True:
                event.clear()
                if wake := inbox.take(queues):
                    return wake
                left = end - _elapsed()
                if left <= 0:
                    return Wake()
                await until_set(event, left)
        finally:
            inbox.unlisten(event)

    async def listen(self, queues: frozenset[str]) -> None:
        """Subscribe to the queues, unless this bundle has done so before."""
        if self._listener is None or (queues <= self._waited_for and self._has_started):
            return
        self._waited_for |= queues
        tried = self._listener.start(self, self._waited_for)
        if not self._has_started:
            self._has_started = True
            self._silences_before = self._listener.silences
        try:
            async with asyncio.timeout(_START_S):
                await asyncio.shield(asyncio.wrap_future(tried))
        except TimeoutError:
            pass  # its first success rings everybody

    def wake(self, wake: Wake) -> None:
        """See ``JobStore.wake``."""
        self._wakeups.wake(topics_of(wake))

    def health(self) -> StoreHealth:
        """Whether it hears at this moment, and how often it has ceased to."""
        if self._listener is None or not self._has_started:
            return StoreHealth(wakes=False)
        silences = self._listener.silences - self._silences_before
        return StoreHealth(wakes=self._listener.is_heard, silences=silences)

    async def close(self) -> None:
        """Hear no more; the last one ends the connection."""
        self._inboxes.close()
        if self._listener is not None:
            await self._listener.stop(self)


class Listener:
    """The subscription of this process to one store."""

    def __init__(self, url: RedisUrl, wakeups: WakeUps) -> None:
        self._url = url
        self._wakeups = wakeups
        self._lock = threading.Lock()
        self._users: weakref.WeakSet[Ear] = weakref.WeakSet()
        self._running: _Running | None = None

    @property
    def is_heard(self) -> bool:
        """Whether the subscription stands, as far as is known."""
        return self._running is not None and self._running.is_heard

    @property
    def silences(self) -> int:
        """How often it has ended without being asked to."""
        return 0 if self._running is None else self._running.silences

    def start(self, user: Ear, queues: Collection[str]) -> "Future[None]":
        """Listen from now on, for ``user`` too, and to these queues.

        Done once subscribing has succeeded or failed.
        """
        with self._lock:
            self._users.add(user)
            if self._running is None:
                self._running = _Running(self._url, self._wakeups)
            return self._running.hear(queues)

    async def stop(self, user: Ear) -> None:
        """Not for ``user`` any more."""
        with self._lock:
            self._users.discard(user)
            if self._users or self._running is None:
                return
            running, self._running = self._running, None
        await asyncio.to_thread(running.stop)


class _Running:
    """A thread that listens until it is stopped."""

    def __init__(self, url: RedisUrl, wakeups: WakeUps) -> None:
        self._url = url
        self._wakeups = wakeups
        self.is_heard = False
        self.silences = 0
        self._was_told = False
        self._lock = threading.Lock()
        self._queues: set[str] = set()
        self._waiting: list[tuple[frozenset[str], Future[None]]] = []
        self._news: asyncio.Event | None = None
        self._stopped = asyncio.Event()
        self._thread = EngineThread(
            "forge-jobs wake-ups",
            self._until_stopped,
            on_failure=self._note_silence,
            longest_pause=_LONGEST_PAUSE_S,
        )
        self._thread.start()

    def hear(self, queues: Collection[str]) -> "Future[None]":
        """Hear these queues too; from any thread. Done when they are heard, or that has failed."""
        asked: Future[None] = Future()
        with self._lock:
            self._queues.update(queues)
            self._waiting.append((frozenset(queues), asked))
        self._thread.call_soon(self._tell_of_queues)
        return asked

    def _tell_of_queues(self) -> None:
        if self._news is not None:
            self._news.set()

    def stop(self) -> None:
        """Disconnect; returns when the thread has ended."""
        self._thread.over()
        self._thread.call_soon(self._stopped.set)
        self._thread.join()

    async def _until_stopped(self) -> None:
        self._stopped = asyncio.Event()
        if self._thread.is_over:
            return
        listening = asyncio.create_task(self._live())
        stopped = asyncio.create_task(self._stopped.wait())
        await asyncio.wait({listening, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not listening.done():
            listening.cancel()
            await asyncio.wait({listening})
        else:
            listening.result()

    async def _live(self) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            try:
                await self._listen()
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # work is found by polling meanwhile
                pause = _FIRST_PAUSE_S if self.is_heard else min(pause * 2, _LONGEST_PAUSE_S)
                self._note_silence(error)
            await until_set(asyncio.Event(), pause)

    async def _listen(self) -> None:
        servers = servers_of(self._url)
        async with asyncio.timeout(PING_AFTER_S):
            connection = await servers.connect()
        self._news = asyncio.Event()
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
        with self._lock:
            queues = set(self._queues)
        channels = [keys.channel, keys.first_channel, *map(keys.channel_of, queues)]
        await connection.send_command("SUBSCRIBE", *channels, check_health=False)
        for _ in channels:
            if await _read(connection) is None:
                raise NoAnswer
        heard |= queues
        self._note_hearing(heard)

    async def _subscribe_more(self, connection: Connection, heard: set[str]) -> None:
        """Subscribe to queues that come up; the replies are read with the messages."""
        asked = set(heard)
        assert self._news is not None
        while True:
            self._news.clear()
            with self._lock:
                new = self._queues - asked
            if new:
                asked |= new
                channels = map(self._url.keys.channel_of, new)
                await connection.send_command("SUBSCRIBE", *channels, check_health=False)
            else:
                self._end_waits(heard)
            await self._news.wait()

    def _pass_on(self, message: Any, heard: set[str]) -> None:
        if not isinstance(message, list) or len(message) < 3:
            return
        kind, channel, text = message
        # Anybody may publish anything there.
        queue = self._queue_of(channel.decode(errors="replace"))
        if kind == b"subscribe":
            if queue is not None:
                heard.add(queue)
                # Something may have been published before.
                self._wakeups.wake([QUEUE + queue])
                self._end_waits(heard)
        elif queue is not None:
            self._wakeups.wake([QUEUE + queue])
        else:
            topics = (_topic(topic) for topic in text.decode(errors="replace").split("\n"))
            self._wakeups.wake([topic for topic in topics if topic is not None])

    def _queue_of(self, channel: str) -> str | None:
        """The queue of a channel; None for those of the fleet."""
        own, _, tag = channel.partition(":{")
        return queue_of(f"{{{tag}") if own == self._url.keys.channel and tag else None

    def _note_hearing(self, heard: Collection[str]) -> None:
        if self._was_told:
            logger.info("wake-ups are heard again")
            self._was_told = False
        self.is_heard = True
        # Something may have been published before.
        self._wakeups.wake([EVERYTHING])
        self._end_waits(heard)

    def _note_silence(self, error: BaseException) -> None:
        self.is_heard = False
        if not self._was_told:
            self._was_told = True
            self.silences += 1
            logger.warning(
                "wake-ups are not heard, work is found by polling until they are: %s",
                translate(error) if isinstance(error, TRANSLATED) else repr(error),
            )
        self._end_waits(None)

    def _end_waits(self, heard: Collection[str] | None) -> None:
        """Tell those whose queues are heard; None: all, as no queue is."""
        with self._lock:
            done = [wait for wait in self._waiting if heard is None or wait[0] <= set(heard)]
            self._waiting = [wait for wait in self._waiting if wait not in done]
        for _, future in done:
            if future.set_running_or_notify_cancel():
                future.set_result(None)


@lru_cache(maxsize=1000)
def _topic(text: str) -> str | None:
    """The topic that a text means; None: it is nobody's of ours."""
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
    """The next message; a quiet connection must prove that it lives."""
    message = await _read(connection)
    return await _ask(connection, "PING") if message is None else message


async def _read(connection: Connection) -> Any:
    return await connection.read_response(timeout=PING_AFTER_S, disconnect_on_error=False)


_all: "weakref.WeakValueDictionary[str, Listener]" = weakref.WeakValueDictionary()
_all_lock = threading.Lock()


def listener_of(url: RedisUrl, store_id: str, wakeups: WakeUps) -> Listener:
    """The one of this process for that store, while anybody holds it."""
    with _all_lock:
        found = _all.get(store_id)
        if found is None:
            found = _all[store_id] = Listener(url, wakeups)
        return found
