"""Wake-ups of one process for one store, shared by all bundles on the store.

Where commits raise the sequence number of their topics, a wake-up may arrive on two ways, and
:meth:`WakeUps.pass_on` passes each number on once. :meth:`WakeUps.wake` passes on wake-ups without
a number.
"""

import asyncio
import threading
import weakref
from collections.abc import Iterable, Sequence

from forge_jobs.clock import SystemClock
from forge_jobs.model.queues import Wake

BEAT = "beat"
FLEET = "fleet"
HANDOVER = "handover"
LETTERS = "letters"
QUEUE = "queue:"
CHANGED = QUEUE + "\x01"
"""Before the name of a queue: jobs there have changed. No queue has a name with that character."""

WATCHED = QUEUE + "\x02"
"""Before the name of a queue: some process watches jobs there."""

UNNUMBERED = -1
"""In place of the number of a wake-up that no commit has raised."""

_WATCHED_FOR_S = 30.0
EVERYTHING = "*"
"""Stands for every topic, where wake-ups may have been missed."""


elapsed = SystemClock().elapsed


class Inbox:
    """The wake-ups that one waiter has not taken yet. The waiter lives in one event loop.

    :param topics: wake-ups that are there from the beginning
    """

    def __init__(self, topics: Iterable[str] = ()) -> None:
        self.poll_at = 0.0
        """When the waiter polls next, where no wake-ups arrive. 0.0 before the first wait."""
        self._lock = threading.Lock()
        self._topics: set[str] = set(topics)
        self._waiter: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._queues: frozenset[str] = frozenset()

    def put(self, topics: Sequence[str]) -> list[str]:
        """Add wake-ups, from any thread. Return the topics that the waiter is waiting for now."""
        with self._lock:
            # Only watchers have use for changes.
            topics = [each for each in topics if self._keeps(each)]
            self._topics.update(topics)
            if self._waiter is None or not topics:
                return []
            loop, event = self._waiter
            if loop is _running_loop():
                # The waiter goes on a turn of the loop earlier.
                event.set()
            else:
                try:
                    loop.call_soon_threadsafe(event.set)
                except RuntimeError:  # the waiter's loop has ended
                    self._waiter = None
                    return []
            return [topic for topic in topics if self._is_for_waiter(topic)]

    def _keeps(self, topic: str) -> bool:
        return not topic.startswith(CHANGED) or self._is_for_waiter(topic)

    def _is_for_waiter(self, topic: str) -> bool:
        return not topic.startswith(QUEUE) or topic.removeprefix(QUEUE) in self._queues

    def waits_for(self, topic: str) -> bool:
        """Return whether the waiter is waiting for the topic now."""
        with self._lock:
            return self._waiter is not None and self._is_for_waiter(topic)

    def take(self, queues: frozenset[str]) -> Wake:
        """Remove and return the wake-ups that concern ``queues``. Others stay."""
        with self._lock:
            topics = self._topics
            missed = EVERYTHING in topics
            woken = frozenset(queue for queue in queues if missed or QUEUE + queue in topics)
            wake = Wake(
                queues=woken,
                handover=missed or HANDOVER in topics,
                beat=missed or BEAT in topics,
                fleet=missed or FLEET in topics,
                letters=missed or LETTERS in topics,
            )
            topics.difference_update(QUEUE + queue for queue in woken)
            topics.difference_update((HANDOVER, BEAT, FLEET, LETTERS, EVERYTHING))
        return wake

    def listen(self, queues: frozenset[str]) -> asyncio.Event:
        """Return an event that is set with each new wake-up, until :meth:`unlisten`.

        :param queues: the queues that the waiter asks for
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


class WakeUps:
    """The signals of one database that this process has seen, and the inboxes to pass them to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, int] = {}
        self._inboxes: weakref.WeakSet[Inbox] = weakref.WeakSet()
        self.watched: dict[str, float] = {}
        """Queues that some process watches -> until when that is known (``elapsed``)."""

    def is_watched(self, queue: str, now: float) -> bool:
        """Return whether some process watches jobs of the queue, as far as is known."""
        until = self.watched.get(queue)
        if until is not None and until <= now:
            self.watched.pop(queue, None)
        return until is not None and until > now

    def join(self, inbox: Inbox, signals: Iterable[tuple[str, int]]) -> None:
        """Pass all that comes after ``signals``, which the caller has just read, to ``inbox``."""
        signals = list(signals)
        with self._lock:
            if not self._inboxes:
                # The file may have been restored, so older numbers are of no use.
                self._known = dict(signals)
            self._inboxes.add(inbox)
        # Other inboxes may not have seen these.
        self.pass_on(signals)

    def leave(self, inbox: Inbox) -> None:
        """Pass nothing more to ``inbox``. Also done when ``inbox`` is no longer referenced."""
        with self._lock:
            self._inboxes.discard(inbox)

    def pass_on(self, signals: Iterable[tuple[str, int]]) -> None:
        """Pass on the topics whose number is higher than any passed on before."""
        fresh: list[str] = []
        unnumbered: list[str] = []
        with self._lock:
            for topic, seq in signals:
                if seq == UNNUMBERED:
                    unnumbered.append(topic)
                elif seq > self._known.get(topic, 0):
                    self._known[topic] = seq
                    fresh.append(topic)
            inboxes = list(self._inboxes) if fresh else []
        for inbox in inboxes:
            inbox.put(fresh)
        if unnumbered:
            self.wake(unnumbered)

    def is_waited_for(self, topic: str) -> bool:
        """Return whether a waiter of this process is waiting for the topic now."""
        with self._lock:
            inboxes = list(self._inboxes)
        return any(inbox.waits_for(topic) for inbox in inboxes)

    def wake(self, topics: Sequence[str]) -> set[str]:
        """Pass topics on without a number. Return the topics that a waiter is waiting for now."""
        if watched := [topic for topic in topics if topic.startswith(WATCHED)]:
            until = elapsed() + _WATCHED_FOR_S
            self.watched.update((topic.removeprefix(WATCHED), until) for topic in watched)
            topics = [topic for topic in topics if topic not in watched]
        if not topics:
            return set()
        with self._lock:
            inboxes = list(self._inboxes)
        return {topic for inbox in inboxes for topic in inbox.put(topics)}


class Inboxes:
    """The inboxes of one bundle: one for each waiter, so that none takes another's wake-ups."""

    def __init__(self, wakeups: WakeUps) -> None:
        self._wakeups = wakeups
        self._own = Inbox()
        self._others: weakref.WeakKeyDictionary[object, Inbox] = weakref.WeakKeyDictionary()

    def open(self, signals: Iterable[tuple[str, int]] = ()) -> None:
        """Receive all that comes after ``signals``, which the caller has just read."""
        self._wakeups.join(self._own, signals)

    def of(self, waiter: object | None) -> Inbox:
        """Return the inbox of a waiter. None: the bundle's own, there from the beginning.

        Any other inbox begins with a wake-up for every topic, and ends with the waiter.
        """
        if waiter is None:
            return self._own
        inbox = self._others.get(waiter)
        if inbox is None:
            inbox = self._others[waiter] = Inbox([EVERYTHING])
            self._wakeups.join(inbox, ())
        return inbox

    def close(self) -> None:
        """Receive nothing more."""
        for inbox in (self._own, *self._others.values()):
            self._wakeups.leave(inbox)


_all: "weakref.WeakValueDictionary[str, WakeUps]" = weakref.WeakValueDictionary()
_all_lock = threading.Lock()


def wakeups_of(store_id: str) -> WakeUps:
    """Return the one object of this process for that store, shared while any bundle keeps it."""
    with _all_lock:
        found = _all.get(store_id)
        if found is None:
            found = _all[store_id] = WakeUps()
        return found


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def topics_of(wake: Wake) -> list[str]:
    """Return the topics that a wake stands for."""
    named = (
        (HANDOVER, wake.handover),
        (BEAT, wake.beat),
        (FLEET, wake.fleet),
        (LETTERS, wake.letters),
    )
    return [QUEUE + queue for queue in wake.queues] + [
        topic for topic, is_woken in named if is_woken
    ]


async def until_set(event: asyncio.Event, seconds: float) -> bool:
    """Wait until the event is set, at most so long. Return whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
