"""saq 0.26, https://saq-py.readthedocs.io, on Redis and on PostgreSQL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from bench.peers.running import beside
from bench.side import Side

POOL_SIZE = 20


class SaqRedis(Side):
    """Jobs one by one; it waits on the store for each."""

    name = "saq-redis"
    store = "redis"
    # It imports typing_extensions without asking for it.
    requirements: ClassVar[tuple[str, ...]] = ("saq[redis,hiredis]==0.26.4", "typing_extensions")
    settings = {
        "concurrency": "the workers; README.md, Usage",
        "hiredis": "installed; README.md, Install",
        "ttl of jobs": "600 seconds, the default: a finished job is kept",
    }
    jobs = 8_000

    def _queue_of(self, url: str) -> Any:
        from saq import Queue

        return Queue.from_url(url)

    async def open(self) -> None:
        self._queue = self._queue_of(self.work.url)
        await self._queue.connect()

    async def close(self) -> None:
        await self._queue.disconnect()

    async def prepare(self) -> None:
        async with self:
            pass

    async def enqueue(self, number: int) -> None:
        await self._queue.enqueue("noop", n=number)

    async def enqueue_stamped(self, sent: float) -> None:
        await self._queue.enqueue("stamp", sent=sent)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        from saq import Worker

        async def noop(context: Any, *, n: int) -> None:
            self.tally.ran()

        async def stamp(context: Any, *, sent: float) -> None:
            self.tally.arrive(sent)

        functions: list[Any] = [("noop", noop), ("stamp", stamp)]
        worker: Any = Worker(self._queue, functions, concurrency=self.work.workers)
        # Its handlers would take the signals of the whole process.
        worker.SIGNALS = []
        async with beside(worker.start()):
            yield

    async def is_drained(self, target: int) -> bool:
        # A job leaves this set in the step that stores its end.
        return int(await self._queue.count("incomplete")) == 0


class SaqPostgres(SaqRedis):
    """The same worker over psycopg."""

    name = "saq-postgres"
    store = "postgres"
    requirements = ("saq[postgres]==0.26.4", "psycopg[binary,pool]==3.3.9")
    settings = {
        "concurrency": "the workers; README.md, Usage",
        "pool": "4 to 20 connections, the default; docs/queues.rst",
        "psycopg": "the binary build; docs/queues.rst",
        "ttl of jobs": "600 seconds, the default: a finished job is kept",
    }
    jobs = 3_000

    def _queue_of(self, url: str) -> Any:
        from saq import Queue

        return Queue.from_url(url, min_size=4, max_size=POOL_SIZE)
