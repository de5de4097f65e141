"""The newest looks at a store, read once for all who show them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from forge_jobs.clock import SystemClock
from forge_jobs.errors import ForgeJobsError
from forge_jobs.model.looks import FleetLook
from forge_jobs.model.queues import ENDED_COUNTED, QueueCounts
from forge_jobs.operating.snapshots.reading import Aside, Looked, read_aside, read_looked
from forge_jobs.operating.together import together
from forge_jobs.policy.judgement.problems.problem import Problem
from forge_jobs.storage.protocols import Storage, StoreReport

FRESH = 1.0
"""Seconds for which a look counts as new: there is at most one reading a second."""

V = TypeVar("V")

_visit: ContextVar[float] = ContextVar("visit", default=float("inf"))
"""Answers from then on are new enough for the page that is being written."""


class Kept(Generic[V]):
    """The newest answer to one question. Of many who ask at once one reads, and all get that.

    Belongs to one event loop.

    :param clock: monotonic seconds
    """

    def __init__(self, clock: Callable[[], float], read: Callable[[], Awaitable[V]]) -> None:
        self._clock = clock
        self._read = read
        self._lock = asyncio.Lock()
        self._found: list[V] = []
        self._error: ForgeJobsError | None = None
        self.at = float("-inf")
        """When the newest reading began."""
        self.answered_at = self.at
        """When the newest answer was there."""
        self._oldest = self.at

    def forget(self) -> None:
        """Give no answer of before to those who ask from now on."""
        self._oldest = self._clock()

    async def get(self, age: float = FRESH) -> V:
        """Return an answer whose reading began at most ``age`` seconds ago, or within the visit.

        :raises ForgeJobsError: that reading failed
        """
        oldest = max(min(self._clock() - age, _visit.get()), self._oldest)
        async with self._lock:
            # A reading that has begun while this one waited is new enough.
            if self.at <= oldest:
                await self._renew()
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._found[0]

    @property
    def newest(self) -> V:
        """The newest answer. There is one already."""
        return self._found[0]

    async def _renew(self) -> None:
        began = self._clock()
        try:
            self._found, self._error = [await self._read()], None
            self.answered_at = self._clock()
        except ForgeJobsError as error:
            self._error = error
        # After the call: a reading that is cancelled is no answer.
        self.at = began


class Reader:
    """Reads a store for all pages, streams and scrapes of a process.

    Belongs to one event loop.

    :param clock: monotonic seconds
    """

    def __init__(self, storage: Storage, clock: Callable[[], float] | None = None) -> None:
        self.storage = storage
        self.clock = clock or SystemClock().elapsed
        self._fleet = Kept(self.clock, storage.cron.look)
        self._counts = Kept(self.clock, self._count)
        self._aside = Kept(self.clock, self._read_aside)
        self._report = Kept(self.clock, storage.report)
        self._looked = Kept(self.clock, self._look)

    @contextmanager
    def visit(self, age: float = FRESH) -> Iterator[None]:
        """Let what is read inside be new until the end, however long a slow store takes.

        Else a page that takes more than a second would read its first parts again.

        :param age: of what was read before, in seconds
        """
        token = _visit.set(min(_visit.get(), self.clock() - age))
        try:
            yield
        finally:
            _visit.reset(token)

    async def now(self, age: float = FRESH) -> datetime:
        """Return the store's time, by a look of at most ``age`` seconds ago."""
        return self._time((await self._fleet.get(age)).now, self.clock())

    async def fleet(self, age: float = FRESH) -> FleetLook:
        """Return all but the jobs: one call.

        :raises Unavailable: the store is silent, or the part with pods and schedules
        """
        return await self._fleet.get(age)

    @property
    def age(self) -> float:
        """Seconds since the newest look at the fleet began."""
        return self.clock() - self._fleet.at

    async def counts(self, age: float = FRESH) -> Mapping[str, QueueCounts]:
        """Return the counts of all queues that answer: one call.

        :raises Unavailable: the store is silent
        """
        return await self._counts.get(age)

    def counted_at(self) -> datetime:
        """Return the store's time before the newest counts were read.

        There is a look at the fleet already.
        """
        return self._time(self._fleet.newest.now, self._counts.at)

    def forget(self) -> None:
        """Read anew what is asked from now on, as after a change by a person."""
        for part in (self._fleet, self._counts, self._aside, self._report, self._looked):
            part.forget()

    async def aside(self, age: float = FRESH) -> Aside:
        """Return what problems need and changes slowly: one or two calls.

        :raises Unavailable: the store is silent
        """
        return await self._aside.get(age)

    async def report(self, age: float = FRESH) -> StoreReport:
        """Return the report of the store on itself: one call.

        :raises Unavailable: the store is silent
        """
        return await self._report.get(age)

    async def looked(self, age: float = FRESH) -> Looked:
        """Return the newest look: two calls beside those of its parts.

        :param age: 0 reads all parts anew
        :raises Unavailable: the store is silent, or the part with pods and schedules
        """
        if not age:
            self.forget()
        return await self._looked.get(age)

    async def problems(self, age: float = FRESH) -> Sequence[Problem]:
        """Return what is wrong, the worst first.

        :raises Unavailable: the store is silent, or the part with pods and schedules
        """
        return (await self.looked(age)).problems

    def _time(self, known: datetime, moment: float) -> datetime:
        return known + timedelta(seconds=moment - self._fleet.answered_at)

    async def _count(self) -> Mapping[str, QueueCounts]:
        return await self.storage.jobs.counts(ended_at_most=ENDED_COUNTED)

    async def _read_aside(self) -> Aside:
        return await read_aside(self.storage, await self.fleet())

    async def _look(self) -> Looked:
        with self.visit():
            fleet, counts = await together(self.fleet(), self.counts())
            # Alone, as in read_snapshot.
            report = await self.report()
            aside = await self.aside()
        return await read_looked(self.storage, fleet, counts, aside, report)
