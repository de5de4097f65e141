"""Listeners: one connection per process and store, whose messages become wake-ups.

A listener has a thread and an event loop, so that one listener serves the bundles of all event
loops of the process and no busy loop can delay it. The first bundle that waits starts the listener,
the last one that closes ends it, so a program that only enqueues has none. A store says how to
connect, how to subscribe and what a message means.
"""

import asyncio
import math
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Sequence
from concurrent.futures import Future
from contextlib import suppress

import anyio.to_thread

from forge_jobs.clock import SystemClock
from forge_jobs.engine_threads import EngineThread
from forge_jobs.model.queues import Wake
from forge_jobs.outages import Outage, Pauses
from forge_jobs.reports import reporter
from forge_jobs.storage.protocols.bundle import StoreHealth
from forge_jobs.storage.wakeups import (
    EVERYTHING,
    Inboxes,
    WakeUps,
    topics_of,
    until_set,
    wakeups_of,
)

logger = reporter(__name__)

_ENDED_WITHIN_S = 5.0
_elapsed = SystemClock().elapsed


class Listener(ABC):
    """The subscription of this process to one store.

    :param key: names the store and the way to the store
    """

    pauses = Pauses(0.1, 2.0)
    """Between two tries to listen."""

    wakes_when_lost = False
    """Waiters are woken when listening fails, because they poll from then on."""

    def __init__(self, key: Hashable, wakeups: WakeUps) -> None:
        self.works = False
        """The subscription stands, as far as is known."""
        self.silences = 0
        """How often the subscription has ended without a stop."""
        self.wakeups = wakeups
        self.lock = threading.Lock()
        self.queues: set[str] = set()
        """The queues that waiters of this process ask for. Read under the lock."""
        self._key = key
        self._users: weakref.WeakSet[Waiters] = weakref.WeakSet()
        self._asked: list[tuple[frozenset[str], Future[None]]] = []
        self._outage = Outage()
        self._task: asyncio.Task[None] | None = None
        self._thread = EngineThread("forge-jobs wake-ups", self._main, on_failure=self.lost)

    @abstractmethod
    async def listen(self) -> None:
        """Connect, subscribe, and pass messages on until an error or a cancellation.

        Calls :meth:`found` once messages arrive.
        """

    @abstractmethod
    def in_words(self, error: BaseException) -> str:
        """Name an error for the log, without addresses and passwords."""

    def on_more_queues(self) -> None:
        """Subscribe to queues that are new in :attr:`queues`. Called on the listener's thread."""
        if self.works:
            self.end_waits()

    def hear(self, queues: frozenset[str]) -> "Future[None]":
        """Listen to these queues too, from any thread. Done when that has succeeded or failed."""
        asked: Future[None] = Future()
        with self.lock:
            self.queues |= queues
            self._asked.append((queues, asked))
        self._thread.call_soon(self.on_more_queues)
        return asked

    def found(self, heard: Collection[str] | None = None) -> None:
        """Take note that messages arrive.

        :param heard: the queues whose messages arrive, None: all
        """
        if self.works:
            return
        if self._outage.is_over():
            logger.info("wake-ups arrive from the store again")
        self.works = True
        # Something may have been published before.
        self.wakeups.wake([EVERYTHING])
        self.end_waits(heard)

    def lost(self, error: BaseException) -> None:
        """Take note that listening has failed."""
        self.works = False
        if self._outage.is_new():
            self.silences += 1
            logger.warning(
                "no wake-ups arrive from the store, and work is found by polling until they do: %s",
                self.in_words(error),
            )
            if self.wakes_when_lost:
                self.wakeups.wake([EVERYTHING])
        self.end_waits()

    def end_waits(self, heard: Collection[str] | None = None) -> None:
        """End the calls of :meth:`hear` whose queues are among ``heard``. None: all calls."""
        with self.lock:
            done = [each for each in self._asked if heard is None or each[0] <= set(heard)]
            self._asked = [each for each in self._asked if each not in done]
        for _, asked in done:
            if asked.set_running_or_notify_cancel():
                asked.set_result(None)

    async def leave(self, user: "Waiters") -> None:
        """Listen for one bundle less. After the last one the listener ends."""
        with _all_lock:
            self._users.discard(user)
            if self._users or _all.get(self._key) is not self:
                return
            del _all[self._key]
        self._thread.over()
        self._thread.call_soon(self._cancel)
        await anyio.to_thread.run_sync(self._thread.join, _ENDED_WITHIN_S)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _main(self) -> None:
        self._task = asyncio.current_task()
        failures = 0
        try:
            while not self._thread.is_over:
                try:
                    await self.listen()
                except asyncio.CancelledError:
                    raise
                except BaseException as error:  # after any error the waiters poll meanwhile
                    failures = 1 if self.works else failures + 1
                    self.lost(error)
                await until_set(asyncio.Event(), self.pauses.after(failures))
        except asyncio.CancelledError:
            if not self._thread.is_over:
                raise

    @staticmethod
    def joined(key: Hashable, make: "Make", user: "Waiters") -> "Listener":
        """Return the one listener of this process for the key, which ``user`` shares from now."""
        with _all_lock:
            found = _all.get(key)
            # A forked child has the object, but not the thread.
            if found is None or not found._thread.is_alive:
                found = _all[key] = make(key, user.wakeups)
                found._thread.start()
            found._users.add(user)
            return found


Make = Callable[[Hashable, WakeUps], Listener]

_all: dict[Hashable, Listener] = {}
_all_lock = threading.Lock()


class Waiters:
    """``wait_for_work`` and ``wake`` of one bundle.

    :param key: see :class:`Listener`
    :param listener: makes the listener. None: only wake-ups of this process arrive
    :param polls_every: seconds between two looks for work of a waiter while the listener fails
    :param starts_within: seconds that a first wait gives the listener to connect
    """

    def __init__(
        self,
        store_id: str,
        key: Hashable,
        listener: Make | None,
        *,
        polls_every: float = math.inf,
        starts_within: float = 1.0,
    ) -> None:
        self._key = key
        self.wakeups = wakeups_of(store_id)
        self._inboxes = Inboxes(self.wakeups)
        self._inboxes.open()
        self._make = listener
        self._polls_every = polls_every
        self._starts_within = starts_within
        self._listener: Listener | None = None
        self._silences_before = 0
        self._queues: set[str] = set()

    @property
    def is_listening(self) -> bool:
        """True while messages arrive."""
        return self._listener is not None and self._listener.works

    def health(self) -> StoreHealth:
        """Return whether the listener works now, and how often it has been interrupted."""
        silences = self._listener.silences - self._silences_before if self._listener else 0
        return StoreHealth(wakes=self.is_listening, silences=silences)

    def wake(self, wake: Wake) -> None:
        """See ``JobStore.wake``."""
        self.wakeups.wake(topics_of(wake))

    def wake_for(self, topics: Sequence[str]) -> set[str]:
        """Wake waiters for a commit of this process, whose message the listener skips.

        :returns: the topics that a waiter of this process is waiting for now
        """
        return self.wakeups.wake(topics)

    async def listen(self, queues: frozenset[str]) -> None:
        """Listen to the queues, unless this bundle has done so before."""
        make = self._make
        if make is None or (self._listener is not None and queues <= self._queues):
            return
        self._queues |= queues
        if self._listener is None:
            self._listener = Listener.joined(self._key, make, self)
            self._silences_before = self._listener.silences
        asked = self._listener.hear(frozenset(self._queues))
        # A success that comes later wakes every waiter.
        with suppress(TimeoutError):
            async with asyncio.timeout(self._starts_within):
                await asyncio.shield(asyncio.wrap_future(asked))

    async def wait(self, queues: frozenset[str], at_most: float, waiter: object | None) -> Wake:
        """Return the wake-ups for ``waiter``, an empty Wake after ``at_most`` seconds.

        All wake-ups since :meth:`listen` are returned, and some from before.
        """
        inbox = self._inboxes.of(waiter)
        event = inbox.listen(queues)
        try:
            end = _elapsed() + at_most
            while True:
                event.clear()
                if wake := inbox.take(queues):
                    return wake
                now = _elapsed()
                if not self.is_listening and now >= inbox.poll_at > 0:
                    inbox.poll_at = now + self._polls_every
                    return Wake(queues=queues, handover=True)
                inbox.poll_at = inbox.poll_at or now + self._polls_every
                if now >= end:
                    return Wake()
                until = end if self.is_listening else min(end, inbox.poll_at)
                await until_set(event, until - now)
        finally:
            inbox.unlisten(event)

    async def close(self) -> None:
        """Wait for nothing any more. The last bundle of the process ends the listener."""
        self._inboxes.close()
        if self._listener is not None:
            await self._listener.leave(self)
