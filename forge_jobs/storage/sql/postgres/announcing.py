"""Tells other processes what a commit has news of: right after it, and not with it.

A NOTIFY inside a transaction makes its commit wait for every other that has one, on the whole
server, each with its write to the disk. Sent alone it writes nothing, so nobody waits for long.
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
"""A process tells of one queue at most so often. The first time it tells at once."""

HEARD_APART_S = 0.005
"""What somebody in this process waits for is told to others so much later: whoever hears it here
asks for the work at once, which a notice at the same moment would hold up."""

_TIMES_APART = 20
_LONGEST_APART_S = 0.5
"""Where notices take longer than they need to, there is much to do: the pause is so many times what
they take longer, up to this. So they cost a twentieth of what all else costs."""

_FORGOTTEN = 1.02
"""The shortest time of a notice counts so much more with each that is longer: ways change."""

_MOST_BYTES = 7900
"""In one notice; the server's own limit is 8,000."""

_MOST_TOPICS = 10_000
_SENDER = "@"
"""Begins the first item of a notice, which says what process it is from."""

_FAILURES: tuple[type[Exception], ...] = (StorageError, *DRIVER_ERRORS)

_boot = secrets.token_hex(4)
_elapsed = SystemClock().elapsed


def _this_process() -> str:
    # A process that was forked off is another one.
    return f"{_SENDER}{_boot}{os.getpid():x}"


def news_in(payload: str) -> list[str]:
    """The topics of a notice; none of one that this process has sent itself."""
    topics = payload.split(",")
    if not topics[0].startswith(_SENDER):
        return topics
    return [] if topics[0] == _this_process() else topics[1:]


def payloads(topics: Sequence[str], first: str = "") -> list[str]:
    """The topics, joined by commas, in as few notices as they fit.

    :param first: begins each of them
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
    """When this process may tell of a topic next. Shared by its event loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[str, float] = {}
        self._apart = APART_S
        self._fastest = math.inf

    def note(self, took: float) -> None:
        """A notice took so many seconds, from its sending to its answer."""
        self._fastest = min(took, self._fastest * _FORGOTTEN)
        longer = took - self._fastest
        self._apart = min(max(APART_S, _TIMES_APART * longer), _LONGEST_APART_S)

    def turn(self, topic: str, now: float) -> float:
        """From when on it may be told, which then counts as told."""
        with self._lock:
            if len(self._next) >= _MOST_TOPICS:
                self._next = {name: at for name, at in self._next.items() if at > now}
            at = max(now, self._next.get(topic, now))
            self._next[topic] = at + self._apart
        return at


class Announcer:
    """Tells of the commits of one bundle, on its event loop. One notice is under way at a time.

    What cannot be told is found by a beat: nobody hears of the failure but the log.

    :param send: runs a statement by itself, within a limit of its own; how many seconds it took
    """

    def __init__(
        self, store_id: str, channel: str, send: Callable[[str], Awaitable[float]]
    ) -> None:
        self._pace = _pace_of(store_id)
        self._channel = channel
        # No text that a user chose can hold it.
        self._quote = f"$f{secrets.token_hex(8)}$"
        self._send = send
        self._waiting: dict[str, float] = {}
        self._sending: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._outage = Outage()

    def tell(self, topics: Iterable[str], heard: Collection[str] = ()) -> None:
        """These have news, which are committed.

        :param heard: for these somebody waits in this process, who has been told
        """
        now = _elapsed()
        for topic in topics:
            if topic not in self._waiting:
                first = now + HEARD_APART_S if topic in heard else now
                self._waiting[topic] = self._pace.turn(topic, first)
        self._go_on(now)

    async def close(self) -> None:
        """Tell what is still to be told, whenever its turn is."""
        while self._sending is not None:
            # What comes with its end, and may begin the next one, has come before this goes on.
            await asyncio.wait([self._sending])
        self._stop_timer()
        if self._waiting:
            topics, self._waiting = list(self._waiting), {}
            await self._told(topics)

    def _go_on(self, now: float) -> None:
        if self._sending is not None or not self._waiting:
            return
        self._stop_timer()
        due = [topic for topic, at in self._waiting.items() if at <= now]
        if due:
            for topic in due:
                del self._waiting[topic]
            self._sending = asyncio.ensure_future(self._told(due))
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

    async def _told(self, topics: Sequence[str]) -> None:
        quote = self._quote
        calls = (
            f"pg_notify('{self._channel}', {quote}{payload}{quote})"
            for payload in payloads(topics, _this_process())
        )
        try:
            took = await self._send(f"SELECT {', '.join(calls)}")
        except _FAILURES as error:
            if self._outage.is_new():
                logger.warning(
                    "other processes were not woken for new jobs, and find them at their next "
                    "heartbeat: %s",
                    error if isinstance(error, StorageError) else translate(error),
                )
        else:
            self._outage.is_over()
            self._pace.note(took)


_paces: "weakref.WeakValueDictionary[str, Pace]" = weakref.WeakValueDictionary()
_paces_lock = threading.Lock()


def _pace_of(store_id: str) -> Pace:
    """The one object of this process for that store, while anybody holds it."""
    with _paces_lock:
        found = _paces.get(store_id)
        if found is None:
            found = _paces[store_id] = Pace()
        return found
