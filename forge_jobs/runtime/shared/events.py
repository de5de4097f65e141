"""Timeline events, buffered by the process in which they happened."""

import threading
from collections import deque
from collections.abc import Sequence

import anyio

from forge_jobs.clock import Clock, SystemClock, from_us
from forge_jobs.errors import CONCERNS_ALL, StorageError
from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.jobs import Claim
from forge_jobs.outages import Outage
from forge_jobs.reports import reporter
from forge_jobs.storage.protocols import JobStore

logger = reporter(__name__)

EVENT_CAPACITY = 20_000
"""Enough for a busy pod while a store is down for a minute, and a bound on memory for a day."""

FLUSH_BATCH = 500

ROUTINE_PER_SECOND = 100
"""Starts and successes recorded at most. Beyond that pace people do not read each of them, and
writing them would cost the store as much as the jobs."""


class EventBuffer:
    """Keeps events until the store has taken them. When the buffer is full, the oldest are dropped.

    Events are for people and never counted. A killed process loses the events of its buffer, and a
    flush whose reply was lost writes its batch twice. Recording an event costs no round trip: a pod
    knows the store's time by its beats.

    ``add`` and ``record`` may be called from any thread. Flushing belongs to one event loop.

    :param clock: shows the store's time
    :param host_id: put on events that ``record`` makes, "" in a process that runs nothing
    :param capacity: events kept at most. 0: no event is recorded
    """

    def __init__(
        self,
        jobs: JobStore,
        *,
        host_id: str = "",
        clock: Clock | None = None,
        capacity: int = EVENT_CAPACITY,
    ) -> None:
        self._jobs = jobs
        self._host_id = host_id
        self._clock = clock or SystemClock()
        self._capacity = capacity
        self._events: deque[TimelineEvent] = deque()
        self._lock = threading.Lock()
        self._flushing = anyio.Lock()
        self._overflow = Outage()
        self._routine_second = self._routine_count = 0
        self.dropped = 0
        """Events that were dropped for want of room, or because the store refused them for good."""

    def __len__(self) -> int:
        return len(self._events)

    def record_routine(self, kind: EventKind, claim: Claim, detail: str, now: float) -> None:
        """Record a start or a success, unless they come too fast to be read.

        :param now: ``Clock.elapsed``
        """
        second = int(now)
        if second != self._routine_second:
            self._routine_second, self._routine_count = second, 0
        if self._routine_count < ROUTINE_PER_SECOND:
            self._routine_count += 1
            self.record(kind, queue=claim.queue, job_id=claim.job_id, detail=detail)

    def record(
        self, kind: EventKind, *, queue: str = "", job_id: str = "", detail: str = ""
    ) -> None:
        """Add an event of this process that happens now."""
        at = from_us(self._clock.time_us())
        self.add(
            TimelineEvent(
                at=at,
                kind=kind,
                queue=queue,
                job_id=job_id,
                host_id=self._host_id,
                detail=detail,
            )
        )

    def add(self, event: TimelineEvent) -> None:
        """Add one event. Never fails and never waits."""
        if not self._capacity:
            return
        with self._lock:
            self._events.append(event)
            full = self._make_room()
        if full:
            self._warn_once()

    async def flush_once(self) -> int:
        """Write everything that is buffered, and return how many events were written.

        Events of queues whose part of the store is silent stay buffered. After an error all events
        stay buffered, in their order, except a batch that the store refuses for good: repeating
        that batch would hold up all later ones.

        :raises StorageError: the store did not take the events
        """
        written = 0
        left: list[TimelineEvent] = []
        async with self._flushing:
            try:
                while batch := self._take():
                    silent = await self._write(batch)
                    left += silent
                    written += len(batch) - len(silent)
            finally:
                self._put_back(left)
        if not left:
            self._overflow.is_over()
        return written

    async def _write(self, batch: Sequence[TimelineEvent]) -> Sequence[TimelineEvent]:
        try:
            return await self._jobs.append_events(batch)
        except CONCERNS_ALL:
            self._put_back(batch)
            raise
        except StorageError:
            self.dropped += len(batch)
            raise
        except BaseException:
            self._put_back(batch)
            raise

    def _take(self) -> list[TimelineEvent]:
        with self._lock:
            count = min(FLUSH_BATCH, len(self._events))
            return [self._events.popleft() for _ in range(count)]

    def _put_back(self, batch: Sequence[TimelineEvent]) -> None:
        with self._lock:
            self._events.extendleft(reversed(batch))
            full = self._make_room()
        if full:
            self._warn_once()

    def _make_room(self) -> bool:
        excess = len(self._events) - self._capacity
        for _ in range(excess):
            self._events.popleft()
        self.dropped += max(excess, 0)
        return excess > 0

    def _warn_once(self) -> None:
        """Log one line per outage, not one per event."""
        if self._overflow.is_new():
            logger.warning(
                "timeline events: the buffer of %d is full, the oldest are dropped until "
                "the store takes events again",
                self._capacity,
            )
