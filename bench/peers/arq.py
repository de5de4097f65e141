"""arq 0.28, https://arq-docs.helpmanual.io."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bench.peers.redis_connected import RedisSide
from bench.peers.running import beside

QUEUE = "arq:queue"


class Arq(RedisSide):
    """Polls. A shorter pause between two polls is the only lever."""

    name = "arq"
    requirements = ("arq==0.28.0", "hiredis")
    settings = {
        "max_jobs": "the workers; docs/index.rst, Reference, Worker",
        "poll_delay": "10 ms rather than 500; docs/index.rst, Reference, Worker",
        "keep_result": "0: a no-op has none; docs/index.rst, Reference, Worker",
        "hiredis": "installed; redis-py README.md, Installation",
    }
    jobs = 8_000

    async def open(self) -> None:
        from arq import create_pool

        await super().open()
        self._pool: Any = await create_pool(self._redis_settings())

    async def close(self) -> None:
        await self._pool.aclose()
        await super().close()

    def _redis_settings(self) -> Any:
        from arq.connections import RedisSettings

        return RedisSettings.from_dsn(self.work.url)

    async def prepare(self) -> None:
        """There is nothing to make."""

    async def enqueue(self, number: int) -> None:
        await self._pool.enqueue_job("noop", number)

    async def enqueue_stamped(self, sent: float) -> None:
        await self._pool.enqueue_job("stamp", sent)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        from arq.worker import Worker, func

        async def noop(context: Any, n: int) -> None:
            self.tally.ran()

        async def stamp(context: Any, sent: float) -> None:
            self.tally.arrive(sent)

        worker = Worker(
            functions=[func(noop, name="noop"), func(stamp, name="stamp")],
            redis_settings=self._redis_settings(),
            handle_signals=False,
            max_jobs=self.work.workers,
            poll_delay=0.01,
            keep_result=0,
        )
        async with beside(worker.async_run()):
            yield

    async def is_drained(self, target: int) -> bool:
        # A job leaves the queue in the transaction that ends it.
        return not await self._asking.exists(QUEUE)
