"""streaq 7.2, https://streaq.readthedocs.io: Redis streams over coredis."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bench.peers.running import beside, coroutines
from bench.side import Side, Work


class Streaq(Side):
    """On asyncio, where uvloop speeds it up."""

    name = "streaq"
    store = "redis"
    requirements = ("streaq==7.2.0",)
    settings = {
        "concurrency": "the workers; docs/worker.rst, Other configuration options",
        "prefetch": "as many again, the default; docs/worker.rst, Other configuration options",
        "ttl": "0: a no-op's result is not kept; docs/task.rst, Registering tasks",
        "uvloop": "installed; docs/worker.rst, Worker optimization",
    }
    jobs = 5_000

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        # A worker registers when it runs, so the producer is another object.
        self._producer, self._noop, self._stamp = self._made()

    def _made(self) -> tuple[Any, Any, Any]:
        """Return a worker and two tasks."""
        from streaq import Worker

        worker: Any = Worker(
            redis_url=self.work.url, concurrency=self.work.workers, handle_signals=False
        )
        noop, stamp = coroutines(self.tally)
        tasks = worker.task(name="noop", ttl=0)(noop), worker.task(name="stamp", ttl=0)(stamp)
        return worker, *tasks

    async def open(self) -> None:
        await self._producer.__aenter__()

    async def close(self) -> None:
        await self._producer.__aexit__(None, None, None)

    async def prepare(self) -> None:
        """Do nothing: the worker makes stream and group."""

    async def enqueue(self, number: int) -> None:
        await self._noop.enqueue(number)

    async def enqueue_stamped(self, sent: float) -> None:
        await self._stamp.enqueue(sent)

    async def enqueue_bulk(self, numbers: Sequence[int]) -> None:
        await self._producer.enqueue_many([self._noop.enqueue(number) for number in numbers])

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        worker, _, _ = self._made()
        async with beside(worker.run_async()):
            yield

    async def is_drained(self, target: int) -> bool:
        # Entries leave the stream when they are acknowledged.
        return int(await self._producer.queue_size()) == 0
