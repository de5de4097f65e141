"""How waiters learn of commits: the bell of one process, shared by all bundles on one store.

Where commits raise the sequence number of their topics, news may come on two ways, and
:meth:`Notices.tell` passes each number on once. News without a number is passed on as it comes,
by :meth:`Notices.ring`.
"""

import asyncio
import threading
import weakref
from collections.abc import Iterable, Sequence

from forge_jobs.model.queues import Wake

BEAT = "beat"
FLEET = "fleet"
HANDOVER = "handover"
QUEUE = "queue:"
EVERYTHING = "*"
"""Stands for every topic there is: for those who may have missed some."""


class Inbox:
    """The hints that one waiter has not taken yet. The waiter lives in one event loop.

    :param topics: hints that lie there from the beginning
    """

    def __init__(self, topics: Iterable[str] = ()) -> None:
        self.poll_at = 0.0
        """When the waiter looks for work next, where no hints arrive; 0.0 before its first wait."""
        self._lock = threading.Lock()
        self._topics: set[str] = set(topics)
        self._waiter: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._queues: frozenset[str] = frozenset()

    def put(self, topics: Sequence[str]) -> list[str]:
        """Add hints; from any thread. Those for which somebody waits here at this moment."""
        with self._lock:
            self._topics.update(topics)
            if self._waiter is None:
                return []
            loop, event = self._waiter
            if loop is _running_loop():
                # The waiter goes on a turn of the loop earlier.
                event.set()
            else:
                try:
                    loop.call_soon_threadsafe(event.set)
                except RuntimeError:  # its loop has ended: nobody waits any more
                    self._waiter = None
                    return []
            return [topic for topic in topics if self._is_for_waiter(topic)]

    def _is_for_waiter(self, topic: str) -> bool:
        return not topic.startswith(QUEUE) or topic.removeprefix(QUEUE) in self._queues

    def take(self, queues: frozenset[str]) -> Wake:
        """The hints that concern ``queues``, which are then forgotten; others stay."""
        with self._lock:
            topics = self._topics
            missed = EVERYTHING in topics
            woken = frozenset(queue for queue in queues if missed or QUEUE + queue in topics)
            wake = Wake(
                queues=woken,
                handover=missed or HANDOVER in topics,
                beat=missed or BEAT in topics,
                fleet=missed or FLEET in topics,
            )
            topics.difference_update(QUEUE + queue for queue in woken)
            topics.difference_update((HANDOVER, BEAT, FLEET, EVERYTHING))
        return wake

    def listen(self, queues: frozenset[str]) -> asyncio.Event:
        """An event that is set with each new hint, until :meth:`unlisten`.

        :param queues: what the waiter asks for
        """
        event = asyncio.Event()
        with self._lock:
            self._waiter = (asyncio.get_running_loop(), event)
            self._queues = queues
        return event

    def unlisten(self, event: asyncio.Event) -> None:
        """Stop setting ``event``."""
        with self._lock:
            if self._waiter is not None and self._waiter[1] is event:
                self._waiter = None


class Notices:
    """What this process knows of one database's signals."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, int] = {}
        self._inboxes: weakref.WeakSet[Inbox] = weakref.WeakSet()

    def join(self, inbox: Inbox, signals: Iterable[tuple[str, int]]) -> None:
        """Let ``inbox`` hear of what comes after ``signals``, which it has just read."""
        signals = list(signals)
        with self._lock:
            if not self._inboxes:
                # Whatever was known of the file before is of no use: it may have been restored.
                self._known = dict(signals)
            self._inboxes.add(inbox)
        # Others who listen already may not have seen these.
        self.tell(signals)

    def leave(self, inbox: Inbox) -> None:
        """Stop telling ``inbox``; also done when it is no longer referenced."""
        with self._lock:
            self._inboxes.discard(inbox)

    def tell(self, signals: Iterable[tuple[str, int]]) -> None:
        """Pass on the topics whose number is higher than any told before."""
        fresh: list[str] = []
        with self._lock:
            for topic, seq in signals:
                if seq > self._known.get(topic, 0):
                    self._known[topic] = seq
                    fresh.append(topic)
            inboxes = list(self._inboxes) if fresh else []
        for inbox in inboxes:
            inbox.put(fresh)

    def ring(self, topics: Sequence[str]) -> set[str]:
        """Pass topics on without a number. Those for which somebody waits at this moment."""
        with self._lock:
            inboxes = list(self._inboxes)
        return {topic for inbox in inboxes for topic in inbox.put(topics)}


class Inboxes:
    """The inboxes of one bundle: one for each waiter, so that no waiter takes another's hints."""

    def __init__(self, notices: Notices) -> None:
        self._notices = notices
        self._own = Inbox()
        self._others: weakref.WeakKeyDictionary[object, Inbox] = weakref.WeakKeyDictionary()

    def open(self, signals: Iterable[tuple[str, int]] = ()) -> None:
        """Hear of what comes after ``signals``, which the caller has just read."""
        self._notices.join(self._own, signals)

    def of(self, waiter: object | None) -> Inbox:
        """The inbox of a waiter; None: the bundle's own, which has been there from the beginning.

        That of any other waiter begins with every hint there is, and ends with the waiter.
        """
        if waiter is None:
            return self._own
        inbox = self._others.get(waiter)
        if inbox is None:
            inbox = self._others[waiter] = Inbox([EVERYTHING])
            self._notices.join(inbox, ())
        return inbox

    def close(self) -> None:
        """Hear nothing more."""
        for inbox in (self._own, *self._others.values()):
            self._notices.leave(inbox)


_all: "weakref.WeakValueDictionary[str, Notices]" = weakref.WeakValueDictionary()
_all_lock = threading.Lock()


def notices_of(store_id: str) -> Notices:
    """The one object of this process for that store, while anybody holds it."""
    with _all_lock:
        found = _all.get(store_id)
        if found is None:
            found = _all[store_id] = Notices()
        return found


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def topics_of(wake: Wake) -> list[str]:
    """The topics that a wake stands for."""
    named = ((HANDOVER, wake.handover), (BEAT, wake.beat), (FLEET, wake.fleet))
    return [QUEUE + queue for queue in wake.queues] + [topic for topic, rung in named if rung]


async def until_set(event: asyncio.Event, seconds: float) -> bool:
    """Wait until the event is set, at most so long; whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
