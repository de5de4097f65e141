"""A bare store: filled with waiting jobs, then claimed and finished batch by batch."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Self

from bench.usage import own_cpu_seconds

CHUNK = 10_000


class Bare(ABC):
    """Connections of a driver to a fresh store.

    :param connections: each runs a loop of claim and finish
    """

    fused: ClassVar[bool] = False
    """True: the end of a batch and the claim of the next are one call."""

    def __init__(self, url: str, connections: int) -> None:
        self.url = url
        self.connections = connections

    @abstractmethod
    async def __aenter__(self) -> Self: ...

    @abstractmethod
    async def __aexit__(self, *error: object) -> None: ...

    @abstractmethod
    async def fill(self, count: int) -> None:
        """Store ``count`` waiting jobs."""

    @abstractmethod
    async def exchange(
        self, connection: int, ended: Sequence[tuple[int, int]], claim: int
    ) -> list[tuple[int, int]]:
        """Finish ``ended`` under their tokens and claim up to ``claim`` more, durably.

        :returns: ids and tokens of what was claimed
        """

    @abstractmethod
    async def finished(self) -> int:
        """How many jobs are stored as finished."""

    async def drain(self, count: int, batch: int) -> tuple[float, float]:
        """Jobs per second, and microseconds of CPU that each cost this process.

        :raises ValueError: not every job is stored as finished
        """
        cpu, started = own_cpu_seconds(), time.perf_counter()
        await asyncio.gather(*(self._work(n, batch) for n in range(self.connections)))
        seconds = time.perf_counter() - started
        cpu = own_cpu_seconds() - cpu
        if (finished := await self.finished()) != count:
            raise ValueError(f"{finished} of {count} jobs are finished")
        return count / seconds, 1e6 * cpu / count

    async def _work(self, connection: int, batch: int) -> None:
        held = await self.exchange(connection, (), batch)
        while held:
            if self.fused:
                held = await self.exchange(connection, held, batch)
            else:
                await self.exchange(connection, held, 0)
                held = await self.exchange(connection, (), batch)
