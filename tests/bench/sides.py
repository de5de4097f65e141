"""Sides that behave as their names say, for tests of the processes around them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from bench.side import Side


class Quick(Side):
    """Runs nothing, and says at once that all has run."""

    name = "quick"
    store = "sqlite"
    requirements = ()
    settings = {}  # noqa: RUF012 - as every side's

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def prepare(self) -> None:
        pass

    async def enqueue(self, number: int) -> None:
        pass

    async def enqueue_stamped(self, sent: float) -> None:
        self.tally.arrive(sent)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        yield

    async def is_drained(self, target: int) -> bool:
        return True


class Broken(Quick):
    """A side that cannot make a store."""

    async def prepare(self) -> None:
        print("this goes to standard error", flush=True)
        raise RuntimeError("no such table")


class Silent(Quick):
    """Never ends."""

    async def is_drained(self, target: int) -> bool:
        return False


class Complete(Quick):
    """A side that has done the work."""

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        for _ in range(self.work.jobs):
            self.tally.ran()
        yield

    async def enqueue_bulk(self, numbers: Sequence[int]) -> None:
        pass
