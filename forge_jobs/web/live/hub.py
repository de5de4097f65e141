"""A reader of the store for all viewers of a process, who get the newest state, no backlog."""

import asyncio
import weakref
from collections.abc import AsyncGenerator, Sequence

import anyio
import msgspec
from msgspec import Struct

from forge_jobs.errors import ForgeJobsError
from forge_jobs.model.ids import JobId
from forge_jobs.operating.access import Access, Actor
from forge_jobs.operating.documents import plain
from forge_jobs.operating.live.documents import LiveLost, LiveState
from forge_jobs.operating.live.reading import EVERY, LiveReader, Now
from forge_jobs.operating.live.seeing import needs_problems, seen
from forge_jobs.reports import reporter
from forge_jobs.web.problems import Refused, refusal_of
from forge_jobs.web.source import Source

logger = reporter(__name__)

MAX_STREAMS = 500
"""Streams of one dashboard. More viewers poll."""

MAX_POLLS = 1_000
"""Different questions of viewers who poll, of the last :data:`POLL_SECONDS`."""

POLL_SECONDS = 15.0
"""How long the reader goes on for a viewer who polls."""

BEAT_SECONDS = 5.0
"""The longest time between two events, so that a viewer notices a dead connection."""

_FRESH = 3 * EVERY
"""A reading that ended longer ago is no answer to a question."""

RETRY_AFTER = 30
"""Seconds after which a viewer who found no place may try again."""


_hubs: "weakref.WeakSet[Hub]" = weakref.WeakSet()


def end_streams() -> None:
    """End the streams of this event loop at once, for a server that is about to stop."""
    loop = asyncio.get_running_loop()
    for hub in _hubs:
        if hub.loop is loop:
            hub.closing.set()


class Viewer(Struct, eq=False):
    """A viewer, with all that is kept of one: no event waits for a slow viewer.

    :param jobs: ids that this one looks at
    :param version: of the state that this one has
    :param sent_at: when the last event was made, in seconds of the event loop
    :param is_lost: the last event said that the store does not answer
    """

    actor: Actor
    jobs: tuple[JobId, ...] = ()
    version: int = 0
    sent_at: float = float("-inf")
    is_lost: bool = False


class Hub:
    """Reads while a viewer looks, once a second at most, and tells all viewers.

    Belongs to one event loop.

    :param with_messages: False: no viewer gets messages of progress
    """

    def __init__(self, source: Source, *, with_messages: bool = True) -> None:
        self._source = source
        self._with_messages = with_messages
        self._viewers: set[Viewer] = set()
        self._polls: dict[tuple[tuple[JobId, ...], bool], float] = {}
        self._reader: LiveReader | None = None
        self._task: asyncio.Task[None] | None = None
        self._next = float("-inf")
        self._pulse = asyncio.Event()
        self.closing = anyio.Event()
        """Set by the server that is about to stop: streams end."""
        self._written: dict[tuple[Access, int], bytes] = {}
        self._read_at = float("-inf")
        self._lost = ""
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop that serves the viewers. None before the first."""
        _hubs.add(self)

    @property
    def is_reading(self) -> bool:
        """True while the reader is there, up to a second after the last viewer."""
        return self._task is not None

    async def stream(self, viewer: Viewer) -> AsyncGenerator[bytes]:
        """Yield events for as long as the viewer stays. The place is taken at the first step."""
        self._viewers.add(viewer)
        closing = self.closing
        try:
            self._start()
            while not closing.is_set():
                pulse = self._pulse
                event = self._event(viewer)
                if event is None:
                    await pulse.wait()
                else:
                    yield event
        finally:
            self._viewers.discard(viewer)

    def check_room(self) -> None:
        """Refuse one more stream than there may be.

        :raises Refused: 503, with the time after which a place may be free
        """
        if len(self._viewers) >= MAX_STREAMS:
            raise _full(f"{MAX_STREAMS} viewers have a live stream")

    async def newest(self, actor: Actor, jobs: tuple[JobId, ...]) -> LiveState:
        """Return the whole state that a viewer may see, of the last reading.

        :raises Refused: the store does not answer, or too many ask
        """
        key = (jobs, needs_problems(actor.access))
        moment = _moment()
        self._polls = {each: until for each, until in self._polls.items() if until > moment}
        if key not in self._polls and len(self._polls) >= MAX_POLLS:
            raise _full(f"{MAX_POLLS} viewers ask for different jobs")
        self._polls[key] = moment + POLL_SECONDS
        self._start()
        while not self._has_read(jobs):
            await self._pulse.wait()
        if self._lost or self._reader is None:
            raise _away(self._lost)
        return self._seen(self._reader.now, actor, jobs)

    def _seen(self, now: Now, actor: Actor, jobs: Sequence[JobId], since: int = 0) -> LiveState:
        return seen(now, actor, jobs, since=since, with_messages=self._with_messages)

    def _has_read(self, jobs: Sequence[JobId]) -> bool:
        """Return whether the last reading was just now, and knows of all the jobs."""
        if self._reader is None or _moment() - self._read_at > _FRESH:
            return False
        known = self._reader.now.jobs
        return bool(self._lost) or all(each in known for each in jobs)

    def _start(self) -> None:
        if self._task is None:
            self.loop = asyncio.get_running_loop()
            # The state of viewers before is out of date.
            self._read_at = float("-inf")
            self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        """Read while a viewer looks. The pace holds also when viewers come and go."""
        try:
            while self._is_looked_at():
                with anyio.move_on_after(max(self._next - _moment(), 0)):
                    await self.closing.wait()
                if self.closing.is_set():
                    break
                if self._is_looked_at():
                    self._next = _moment() + EVERY
                    await self._read()
                    self._tell()
        finally:
            self._task = None
            if self.closing.is_set():
                self.closing = anyio.Event()
            self._tell()

    def _is_looked_at(self) -> bool:
        moment = _moment()
        return bool(self._viewers) or any(until > moment for until in self._polls.values())

    async def _read(self) -> None:
        moment = _moment()
        polls = [key for key, until in self._polls.items() if until > moment]
        jobs = dict.fromkeys(job for viewer in self._viewers for job in viewer.jobs)
        jobs |= dict.fromkeys(job for asked, _ in polls for job in asked)
        with_problems = any(is_asked for _, is_asked in polls) or any(
            needs_problems(viewer.actor.access) for viewer in self._viewers
        )
        try:
            await self._reader_now().read(list(jobs), with_problems=with_problems)
            self._lost = ""
        except (ForgeJobsError, Refused) as error:
            self._lost = refusal_of(error).document.problem
        except Exception:  # the next reading may go well, and viewers must know meanwhile
            logger.exception(
                "the live pages could not be updated, by a defect of forge_jobs; the next reading "
                "is tried, please report the traceback"
            )
            self._lost = "the reading met a defect of the program"
        self._read_at = _moment()

    def _reader_now(self) -> LiveReader:
        reader = self._source.reader()
        if self._reader is None or self._reader.reader is not reader:
            self._reader = LiveReader(reader)
        return self._reader

    def _tell(self) -> None:
        self._written.clear()
        self._pulse.set()
        self._pulse = asyncio.Event()

    def _event(self, viewer: Viewer) -> bytes | None:
        """Return the next event for a viewer, None when there is nothing to tell yet."""
        moment = _moment()
        if self._read_at == float("-inf"):
            return None
        is_silent = moment - viewer.sent_at >= BEAT_SECONDS
        now = None if self._reader is None else self._reader.now
        if self._lost or now is None:
            if viewer.is_lost and not is_silent:
                return None
            viewer.sent_at, viewer.is_lost = moment, True
            lost = LiveLost(at=None if now is None else now.at, problem=self._lost)
            return _event("lost", lost)
        if now.version == viewer.version and not is_silent and not viewer.is_lost:
            return None
        since, viewer.version = viewer.version, now.version
        viewer.sent_at, viewer.is_lost = moment, False
        if viewer.jobs:
            return _event("state", self._seen(now, viewer.actor, viewer.jobs, since))
        key = (viewer.actor.access, since)
        if key not in self._written:
            self._written[key] = _event("state", self._seen(now, viewer.actor, (), since))
        return self._written[key]


def _moment() -> float:
    return asyncio.get_running_loop().time()


def _event(name: str, value: Struct) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(plain(value)))


def _full(problem: str) -> Refused:
    return Refused(
        503,
        "too-many-viewers",
        problem,
        "look again later, or ask for single documents",
        headers={"Retry-After": str(RETRY_AFTER)},
    )


def _away(problem: str) -> Refused:
    return Refused(503, "unavailable", problem, "try again", headers={"Retry-After": "5"})
