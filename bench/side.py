"""A side of a comparison: a queue library behind the few verbs that the workloads need.

Sides run in separate processes, in environments that hold only their library. This module,
:mod:`bench.roles` and the sides import only the standard library and that library.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

JOBS_PER_CALL = "jobs per call"
"""A cost: how many jobs one call to the store, or to the library, took."""


class Unsupported(Exception):
    """The library has no such call."""


@dataclass(frozen=True)
class Work:
    """The task of one process.

    :param side: ``module:Class``
    :param role: a name in :data:`bench.roles.ROLES`
    :param jobs: how many, in all processes together
    :param workers: jobs that run at a time, in this process
    :param processes: how many such processes serve the store
    :param target: jobs stored as finished in the whole store that end a drain
    :param counted: count the statements of SQLite, which takes time
    :param cpus: processors this process may run on. Empty: all
    :param options: options of single sides
    """

    side: str
    url: str
    role: str
    jobs: int = 0
    workers: int = 10
    processes: int = 1
    target: int = 0
    counted: bool = False
    cpus: tuple[int, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


class Tally:
    """Counts of the handlers of this process. Handlers may call it from any thread."""

    def __init__(self) -> None:
        self.executed = 0
        """Lower than the truth when threads count at once: used to choose when to ask the store."""
        self.pickups: list[float] = []
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()

    def ran(self) -> None:
        """A no-op job ran."""
        self.executed += 1

    def arrive(self, sent: float) -> None:
        """Note that a job ran which was sent at ``sent``, on the machine's monotonic clock."""
        self.pickups.append(time.monotonic() - sent)
        self._loop.call_soon_threadsafe(self._arrived.set)

    async def arrivals(self, count: int) -> None:
        """Wait until ``count`` jobs have arrived since the start."""
        while len(self.pickups) < count:
            self._arrived.clear()
            if len(self.pickups) < count:
                await self._arrived.wait()


class Side(ABC):
    """A library behind the verbs. Entering the context connects a producer."""

    name: ClassVar[str]
    store: ClassVar[str]
    """``postgres``, ``redis`` or ``sqlite``."""
    requirements: ClassVar[tuple[str, ...]]
    """The requirements that pip installs into the side's environment."""
    python: ClassVar[str] = ""
    """The interpreter of the library. Empty: that of the bench."""
    settings: ClassVar[Mapping[str, str]]
    """The settings that are not the library's defaults, and where its documentation advises them.
    """
    jobs: ClassVar[int] = 20_000
    """Jobs of a drain, so that it lasts for seconds."""
    uvloop: ClassVar[bool] = True
    """True: the library runs on uvloop. Of no effect for libraries without a loop."""
    threads: ClassVar[bool] = False
    """True: enqueue blocks, so a hundred callers are threads, not tasks."""
    acknowledges_after: ClassVar[bool] = True
    """True: a job leaves the store after the run. False: before, so a crash loses it."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.tally = Tally()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    @abstractmethod
    async def open(self) -> None:
        """Connect as a producer."""

    @abstractmethod
    async def close(self) -> None:
        """Release what was opened."""

    @abstractmethod
    async def prepare(self) -> None:
        """Make tables or streams. Called once per store, before anything else."""

    @abstractmethod
    async def enqueue(self, number: int) -> None:
        """Store one no-op job as durably as the library promises."""

    @abstractmethod
    async def enqueue_stamped(self, sent: float) -> None:
        """Store one job whose handler calls :meth:`Tally.arrive`."""

    async def enqueue_bulk(self, numbers: Sequence[int]) -> None:
        """Store many no-op jobs by the library's call for that.

        :raises Unsupported: there is none
        """
        raise Unsupported

    async def fill(self, count: int) -> None:
        """Enqueue beforehand, in the fastest way."""
        for first in range(0, count, 1_000):
            await self.enqueue_all(range(first, min(first + 1_000, count)))

    async def enqueue_all(self, numbers: Sequence[int]) -> int:
        """Store many in the library's way, and return how many a single call took."""
        try:
            await self.enqueue_bulk(numbers)
        except Unsupported:
            for number in numbers:
                await self.enqueue(number)
            return 1
        return len(numbers)

    @abstractmethod
    def working(self) -> AbstractAsyncContextManager[None]:
        """Run a worker of ``work.workers`` slots, from start to end."""

    def own_costs(self) -> Mapping[str, float]:
        """Return further counts of the side, by name with unit."""
        return {}

    @abstractmethod
    async def is_drained(self, target: int) -> bool:
        """Return whether the store itself says that ``target`` jobs have finished."""
