"""chancy 0.26, https://tkte.ch/chancy: claims in batches, ends in batches."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bench.side import Side

_running: list[Side] = []
"""Chancy imports a job's function by its name, which therefore has no other way to its side."""


async def noop(*, n: int) -> None:
    """Nothing at all."""
    _running[0].tally.ran()


async def stamp(*, sent: float) -> None:
    """Note how long the job took to arrive."""
    _running[0].tally.arrive(sent)


class Chancy(Side):
    """The executor for coroutines."""

    name = "chancy"
    store = "postgres"
    requirements = ("chancy==0.26.0", "psycopg[binary,pool]==3.3.9")
    settings = {
        "executor": "AsyncExecutor; docs/guide/executors.rst, for jobs that do not block",
        "concurrency": "the workers; docs/guide/queues.rst",
        "eager_polling": "True; docs/guide/queues.rst: asks again when a job ends rather than "
        "after the interval",
        "polling_interval": "1 second, the shortest; docs/guide/queues.rst",
    }
    jobs = 10_000

    async def open(self) -> None:
        from chancy import Chancy as Library

        quiet = logging.getLogger("bench.chancy")
        quiet.setLevel(logging.WARNING)
        self._chancy: Any = Library(self.work.url, log=quiet)
        await self._chancy.__aenter__()

    async def close(self) -> None:
        await self._chancy.__aexit__(None, None, None)

    async def prepare(self) -> None:
        from chancy import Chancy as Library
        from chancy import Queue

        async with self:
            await self._chancy.migrate()
            queue = Queue(
                "default",
                concurrency=self.work.workers,
                executor=Library.Executor.Async,
                polling_interval=1,
                eager_polling=True,
            )
            await self._chancy.declare(queue, upsert=True)

    async def enqueue(self, number: int) -> None:
        await self._chancy.push(self._noop(number))

    async def enqueue_stamped(self, sent: float) -> None:
        from chancy import Job

        await self._chancy.push(Job.from_func(stamp, kwargs={"sent": sent}))

    async def enqueue_bulk(self, numbers: Sequence[int]) -> None:
        # Its default is 1,000 a transaction.
        async for _ in self._chancy.push_many([self._noop(number) for number in numbers]):
            pass

    def _noop(self, number: int) -> Any:
        from chancy import Job

        return Job.from_func(noop, kwargs={"n": number})

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        from chancy import Worker

        _running[:] = [self]
        async with Worker(self._chancy, register_signal_handlers=False):
            yield

    async def is_drained(self, target: int) -> bool:
        async with self._chancy.pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT EXISTS (SELECT FROM chancy_jobs WHERE state <> 'succeeded') AS busy"
            )
            row = await cursor.fetchone()
        return not (row["busy"] if isinstance(row, dict) else row[0])
