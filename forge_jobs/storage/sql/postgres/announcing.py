"""Wakes other processes right after a commit, and not with the commit.

A NOTIFY inside a transaction makes its commit wait for every other commit with one, on the whole
server, each with a write to the disk. Sent alone a notification writes nothing, so no commit waits
for long.
"""

import asyncio
import math
import os
import secrets
import threading
import weakref
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from forge_jobs.clock import SystemClock
from forge_jobs.errors import StorageError
from forge_jobs.outages import Outage
from forge_jobs.reports import reporter
from forge_jobs.storage.sql.postgres.driver.errors import DRIVER_ERRORS, translate

logger = reporter(__name__)

APART_S = 0.01
"""A process sends wake-ups of one topic at most so often. The first goes at once."""

WOKEN_APART_S = 0.005
"""Wake-ups for which a waiter of this process is waiting go to other processes so much later: the
waiter here asks for the work at once, and a notification at the same moment would delay that."""

_TIMES_APART = 20
_LONGEST_APART_S = 0.5
"""The longest pause. Where notifications take longer than they need to, the server is busy: the
pause is a multiple of the excess, up to this. So they cost a twentieth of all other work."""

_QUIET_S = 0.02
"""A topic that was not sent for a pause and so much longer may be sent in the message of a commit.
In a burst the caller of an enqueue does not wait for wake-ups, and their time is measured."""

_BUSY_APART_S = 0.05
"""With longer pauses the server is busy, and wake-ups wait for each other."""

_FORGOTTEN = 1.02
"""The shortest time of a notification counts so much more with each longer one: routes change."""

_MOST_BYTES = 7900
"""Bytes of one notification. The server's own limit is 8,000."""

_MOST_TOPICS = 10_000
_SENDER = "@"
"""Begins the first item of a notification, which names the sending process."""

_FAILURES: tuple[type[Exception], ...] = (StorageError, *DRIVER_ERRORS)

_boot = secrets.token_hex(4)
_elapsed = SystemClock().elapsed


def _this_process() -> str:
    # A forked process has an identity of its own.
    return f"{_SENDER}{_boot}{os.getpid():x}"


def topics_in(payload: str) -> list[str]:
    """Return the topics of a notification, none of one that this process has sent itself."""
    topics = payload.split(",")
    if not topics[0].startswith(_SENDER):
        return topics
    return [] if topics[0] == _this_process() else topics[1:]


def payloads(topics: Sequence[str], first: str = "") -> list[str]:
    """Join the topics by commas, in as few notifications as they fit.

    :param first: the first item of each
    """
    made: list[str] = []
    size = _MOST_BYTES
    for topic in topics:
        added = len(topic.encode()) + 1
        if size + added > _MOST_BYTES:
            made.append(f"{first},{topic}" if first else topic)
            size = added + len(first) + 1
        else:
            made[-1] += "," + topic
            size += added
    return made


class Pace:
    """When this process may send a topic next. Shared by all event loops of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[str, float] = {}
        self._apart = APART_S
        self._fastest = math.inf

    def note(self, took: float) -> None:
        """Record the seconds of a notification, from sending to answer."""
        self._fastest = min(took, self._fastest * _FORGOTTEN)
        longer = took - self._fastest
        self._apart = min(max(APART_S, _TIMES_APART * longer), _LONGEST_APART_S)

    def turn(self, topic: str, now: float) -> float:
        """Return the earliest time for sending the topic, and count the topic as sent then."""
        with self._lock:
            if len(self._next) >= _MOST_TOPICS:
                self._next = {name: at for name, at in self._next.items() if at > now}
            at = max(now, self._next.get(topic, now))
            self._next[topic] = at + self._apart
        return at

    def quiet_turn(self, topic: str, now: float) -> bool:
        """Return whether the topic was not sent for a while, and then count it as sent now.

        Never where the server is busy.
        """
        with self._lock:
            is_early = now < self._next.get(topic, -math.inf) + _QUIET_S
            if is_early or self._apart > _BUSY_APART_S:
                return False
        self.turn(topic, now)
        return True


class Announcer:
    """Sends the wake-ups of one bundle's commits, on its event loop, one notification at a time.

    A beat finds what could not be sent. Only the log reports the failure.

    :param send: runs a statement by itself, within a limit of its own, and returns the seconds
    """

    def __init__(
        self, store_id: str, channel: str, send: Callable[[str], Awaitable[float]]
    ) -> None:
        self._pace = _pace_of(store_id)
        self._channel = channel
        # No text that a user chose can contain the quote.
        self._quote = f"$f{secrets.token_hex(8)}$"
        self._send = send
        self._waiting: dict[str, float] = {}
        self._sending: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._outage = Outage()
        self._is_refused = False

    def with_commit(self, topic: str) -> str | None:
        """Return the statement that wakes for the topic, where it may go with the commit's message.

        The topic then counts as sent. None: :meth:`announce` has to send it.
        """
        is_busy = self._is_refused or self._sending is not None or topic in self._waiting
        if is_busy or not self._pace.quiet_turn(topic, _elapsed()):
            return None
        return self._statement([topic])

    def refused(self) -> None:
        """Take note that a message of :meth:`with_commit` has failed: send wake-ups apart until one
        succeeds."""
        self._is_refused = True

    def announce(self, topics: Iterable[str], woken_here: Collection[str] = ()) -> None:
        """Send committed topics, some of them later.

        :param woken_here: topics for which a waiter of this process has been woken
        """
        now = _elapsed()
        for topic in topics:
            if topic not in self._waiting:
                first = now + WOKEN_APART_S if topic in woken_here else now
                self._waiting[topic] = self._pace.turn(topic, first)
        self._go_on(now)

    async def close(self) -> None:
        """Send all remaining topics at once."""
        while self._sending is not None:
            # Callbacks of the task, which may begin the next one, have run before this goes on.
            await asyncio.wait([self._sending])
        self._stop_timer()
        if self._waiting:
            topics, self._waiting = list(self._waiting), {}
            await self._notify(topics)

    def _go_on(self, now: float) -> None:
        if self._sending is not None or not self._waiting:
            return
        self._stop_timer()
        due = [topic for topic, at in self._waiting.items() if at <= now]
        if due:
            for topic in due:
                del self._waiting[topic]
            self._sending = asyncio.ensure_future(self._notify(due))
            self._sending.add_done_callback(self._sent)
        else:
            pause = min(self._waiting.values()) - now
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(pause, lambda: self._go_on(_elapsed()))

    def _sent(self, _: "asyncio.Task[None]") -> None:
        self._sending = None
        self._go_on(_elapsed())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _statement(self, topics: Sequence[str]) -> str:
        quote = self._quote
        calls = (
            f"pg_notify('{self._channel}', {quote}{payload}{quote})"
            for payload in payloads(topics, _this_process())
        )
        return f"SELECT {', '.join(calls)}"

    async def _notify(self, topics: Sequence[str]) -> None:
        try:
            took = await self._send(self._statement(topics))
        except _FAILURES as error:
            if self._outage.is_new():
                logger.warning(
                    "other processes were not woken for new jobs, and find them at their next "
                    "heartbeat: %s",
                    error if isinstance(error, StorageError) else translate(error),
                )
        else:
            self._outage.is_over()
            self._is_refused = False
            self._pace.note(took)


_paces: "weakref.WeakValueDictionary[str, Pace]" = weakref.WeakValueDictionary()
_paces_lock = threading.Lock()


def _pace_of(store_id: str) -> Pace:
    """Return the one object of this process for that store, shared while any bundle keeps it."""
    with _paces_lock:
        found = _paces.get(store_id)
        if found is None:
            found = _paces[store_id] = Pace()
        return found
