"""chancy 0.26, https://tkte.ch/chancy: claims in batches, ends in batches."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bench.side import Side

POOL_SIZE = 20

_running: list[Side] = []
"""Chancy imports a job's function by name, so the function has no other way to the side."""


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
        "executor": "AsyncExecutor, for many jobs that do not block; API, chancy.executors.asyncex",
        "concurrency": "the workers; API, chancy.queue, Queue",
        "eager_polling": "True: asks again when a job ends rather than after the interval; API, "
        "chancy.queue, Queue",
        "polling_interval": "1 second, the shortest; API, chancy.queue, Queue",
        "send_outgoing_interval": "100 ms rather than 1 second: how often ends are stored; API, "
        "chancy.worker, Worker.queue_update",
        "max_connection_pool_size": "20, so that callers do not wait for one of ten; API, "
        "chancy.app, Chancy",
    }
    jobs = 10_000

    async def open(self) -> None:
        from chancy import Chancy as Library

        quiet = logging.getLogger("bench.chancy")
        quiet.setLevel(logging.WARNING)
        self._chancy: Any = Library(self.work.url, log=quiet, max_connection_pool_size=POOL_SIZE)
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
        # The default is 1,000 a transaction.
        async for _ in self._chancy.push_many([self._noop(number) for number in numbers]):
            pass

    def _noop(self, number: int) -> Any:
        from chancy import Job

        return Job.from_func(noop, kwargs={"n": number})

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        from chancy import Worker

        _running[:] = [self]
        worker: Any = Worker(self._chancy, register_signal_handlers=False)
        worker.send_outgoing_interval = 0.1
        async with worker:
            yield

    async def is_drained(self, target: int) -> bool:
        async with self._chancy.pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT EXISTS (SELECT FROM chancy_jobs WHERE state <> 'succeeded') AS busy"
            )
            row = await cursor.fetchone()
        return not (row["busy"] if isinstance(row, dict) else row[0])
