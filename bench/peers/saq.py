"""saq 0.26, https://saq-py.readthedocs.io, on Redis and on PostgreSQL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from bench.peers.running import beside
from bench.side import Side

POOL_SIZE = 20


class SaqRedis(Side):
    """Jobs one by one, each with a wait on the store. Finished jobs leave nothing."""

    name = "saq-redis"
    store = "redis"
    # The library imports typing_extensions without requiring it.
    requirements: ClassVar[tuple[str, ...]] = ("saq[redis,hiredis]==0.26.4", "typing_extensions")
    settings = {
        "concurrency": "the workers; README.md, Example",
        "hiredis": "installed; README.md, Install",
        "ttl": "-1: a finished job is not kept; API, saq.job.Job",
    }
    jobs = 8_000
    ttl: ClassVar[int] = -1

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
        await self._queue.enqueue("noop", n=number, ttl=self.ttl)

    async def enqueue_stamped(self, sent: float) -> None:
        await self._queue.enqueue("stamp", sent=sent, ttl=self.ttl)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        from saq import Worker

        async def noop(context: Any, *, n: int) -> None:
            self.tally.ran()

        async def stamp(context: Any, *, sent: float) -> None:
            self.tally.arrive(sent)

        functions: list[Any] = [("noop", noop), ("stamp", stamp)]
        worker: Any = Worker(self._queue, functions, concurrency=self.work.workers)
        # The library's handlers would take the signals of the whole process.
        worker.SIGNALS = []
        async with beside(worker.start()):
            yield

    async def is_drained(self, target: int) -> bool:
        # A job leaves this set in the step that stores its end.
        return int(await self._queue.count("incomplete")) == 0


class SaqPostgres(SaqRedis):
    """The same worker over psycopg. Finished jobs stay, as by default and as ours do."""

    name = "saq-postgres"
    store = "postgres"
    requirements = ("saq[postgres]==0.26.4", "psycopg[binary,pool]==3.3.9")
    settings = {
        "concurrency": "the workers; README.md, Example",
        "pool": "4 to 20 connections, the default, in a pool of ours: saq's own asks the server "
        "each time before it hands out a connection; API, saq.queue.postgres.PostgresQueue",
        "psycopg": "the binary build, which has its C module; psycopg docs/basic/install.rst",
        "ttl": "600 seconds, the default: a finished job is kept; API, saq.job.Job",
    }
    jobs = 3_000
    ttl = 600

    def _queue_of(self, url: str) -> Any:
        from psycopg_pool import AsyncConnectionPool
        from saq.queue.postgres import PostgresQueue

        pool: Any = AsyncConnectionPool(url, min_size=4, max_size=POOL_SIZE, open=False)
        return PostgresQueue(pool, max_size=POOL_SIZE, manage_pool_lifecycle=True)
