"""Oban for Python 0.7, https://oban.pro/docs/py. Bulk acknowledgements are in the paid edition.

Needs Python 3.12, and so another interpreter than ours.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bench.side import Side, Work


class Oban(Side):
    """The free edition."""

    name = "oban"
    store = "postgres"
    requirements = ("oban==0.7.0",)
    python = "3.12"
    settings = {
        "limit": "the workers; docs/defining_queues.md",
        "pool": "2 to 20 connections; docs/production.md, Sizing the Connection Pool",
        "debounce_interval": "5 ms, the default",
    }
    jobs = 5_000

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        from oban import worker

        tally = self.tally

        @worker(queue="default")
        class Noop:
            async def process(self, job: Any) -> None:
                tally.ran()

        @worker(queue="default")
        class Stamp:
            async def process(self, job: Any) -> None:
                tally.arrive(job.args["sent"])

        self._noop: Any = Noop
        self._stamp: Any = Stamp

    async def open(self) -> None:
        from oban import Oban as Library

        self._pool = await Library.create_pool(self.work.url, min_size=2, max_size=20)
        self._client: Any = Library(pool=self._pool, name="client")

    async def close(self) -> None:
        await self._pool.close()

    async def prepare(self) -> None:
        from oban.schema import install

        async with self:
            await install(self._pool)

    async def enqueue(self, number: int) -> None:
        await self._client.enqueue(self._noop.new({"n": number}))

    async def enqueue_stamped(self, sent: float) -> None:
        await self._client.enqueue(self._stamp.new({"sent": sent}))

    async def enqueue_bulk(self, numbers: Sequence[int]) -> None:
        await self._client.enqueue_many([self._noop.new({"n": number}) for number in numbers])

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        from oban import Oban as Library

        async with Library(pool=self._pool, queues={"default": self.work.workers}):
            yield

    async def is_drained(self, target: int) -> bool:
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT EXISTS (SELECT FROM oban_jobs WHERE state <> 'completed')"
            )
            row = await cursor.fetchone()
        assert row is not None
        return not row[0]
