"""pgqueuer 1.6, https://pgqueuer.readthedocs.io: batches of claims and of ends."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bench.peers.running import beside
from bench.side import Side

# docs/guides/performance-tuning.md: the pool for producers, one connection for the worker.
POOL_SIZE = 10


class PgQueuer(Side):
    """The fastest way: as many jobs in a batch as workers, and no cap on tasks.

    A cap would cost the claim two more CTEs.
    """

    name = "pgqueuer"
    store = "postgres"
    requirements = ("pgqueuer[asyncpg]==1.6.0",)
    settings = {
        "batch_size": "the workers; docs/guides/performance-tuning.md, Batch Size: more for jobs "
        "that are short",
        "max_concurrent_tasks": "none, the default",
        "durability": "durable, the default: all tables are logged",
        "autovacuum": "as pgq autovac sets it; docs/guides/performance-tuning.md, Autovacuum",
        "connections": "a pool for producers, one connection for the worker; "
        "docs/guides/performance-tuning.md, Quick-Reference Checklist",
    }
    jobs = 20_000

    async def open(self) -> None:
        import asyncpg
        from pgqueuer.db import AsyncpgPoolDriver
        from pgqueuer.queries import Queries

        self._pool = await asyncpg.create_pool(self.work.url, min_size=1, max_size=POOL_SIZE)
        self._queries: Any = Queries(AsyncpgPoolDriver(self._pool))

    async def close(self) -> None:
        self._pool.terminate()

    async def prepare(self) -> None:
        async with self:
            await self._queries.install()
            await self._queries.optimize_autovacuum()

    async def enqueue(self, number: int) -> None:
        await self._queries.enqueue("noop", str(number).encode())

    async def enqueue_stamped(self, sent: float) -> None:
        await self._queries.enqueue("stamp", repr(sent).encode())

    async def enqueue_bulk(self, numbers: Sequence[int]) -> None:
        count = len(numbers)
        payloads = [str(number).encode() for number in numbers]
        await self._queries.enqueue(["noop"] * count, payloads, [0] * count)

    def _run_options(self) -> dict[str, int]:
        return {"batch_size": self.work.workers}

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        import asyncpg
        from pgqueuer import PgQueuer as Library

        connection = await asyncpg.connect(self.work.url)
        library = Library.from_asyncpg_connection(connection)

        async def noop(job: Any) -> None:
            self.tally.ran()

        async def stamp(job: Any) -> None:
            self.tally.arrive(float(job.payload))

        library.entrypoint("noop")(noop)
        library.entrypoint("stamp")(stamp)
        async with beside(library.run(**self._run_options()), library.shutdown.set):
            yield

    async def is_drained(self, target: int) -> bool:
        # A finished job has left the table, in the transaction that logs it.
        return not await self._pool.fetchval("SELECT EXISTS (SELECT FROM pgqueuer)")


class PgQueuerCapped(PgQueuer):
    """Bounded to the number of workers, which halves the batches."""

    name = "pgqueuer-capped"
    settings = PgQueuer.settings | {
        "batch_size": "half the workers: docs/guides/performance-tuning.md, "
        "max_concurrent_tasks must be twice the batch size",
        "max_concurrent_tasks": "the workers",
    }

    def _run_options(self) -> dict[str, int]:
        workers = self.work.workers
        return {"batch_size": workers // 2, "max_concurrent_tasks": workers}
