"""streaq 7.2, https://streaq.readthedocs.io: Redis streams over coredis."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

from bench.peers.running import beside
from bench.side import Side, Work


class Streaq(Side):
    """On asyncio, where uvloop helps it."""

    name = "streaq"
    store = "redis"
    requirements = ("streaq==7.2.0",)
    settings = {
        "concurrency": "the workers; docs/worker.rst",
        "prefetch": "as many again, the default; docs/worker.rst",
        "ttl": "0: a no-op's result is not kept; docs/task.rst",
    }
    jobs = 5_000

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        from streaq import Worker

        self._worker: Any = Worker(
            redis_url=work.url, concurrency=work.workers, handle_signals=False
        )
        tally = self.tally

        @self._worker.task(name="noop", ttl=0)
        async def noop(n: int) -> None:
            tally.ran()

        @self._worker.task(name="stamp", ttl=0)
        async def stamp(sent: float) -> None:
            tally.arrive(sent)

        self._noop: Any = noop
        self._stamp: Any = stamp

    async def __aenter__(self) -> Self:
        await self._worker.__aenter__()
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._worker.__aexit__(error_type, error, traceback)

    async def prepare(self) -> None:
        """The worker makes its stream and group."""

    async def enqueue(self, number: int) -> None:
        await self._noop.enqueue(number)

    async def enqueue_stamped(self, sent: float) -> None:
        await self._stamp.enqueue(sent)

    async def enqueue_bulk(self, numbers: Sequence[int]) -> None:
        await self._worker.enqueue_many([self._noop.enqueue(number) for number in numbers])

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        async with beside(self._worker.run_async()):
            yield

    async def is_drained(self, target: int) -> bool:
        # Entries leave the stream when they are acknowledged.
        return int(await self._worker.queue_size()) == 0
