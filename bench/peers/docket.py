"""docket 0.27 (pydocket), https://docket.lol: Redis streams."""

import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from bench.peers.redis_connected import RedisSide, roomy
from bench.peers.running import beside, coroutines
from bench.side import Work


class Docket(RedisSide):
    """Finished tasks leave nothing that outlives them."""

    name = "docket"
    requirements = ("pydocket==0.27.0", "hiredis==3.5.0")
    settings = {
        "concurrency": "the workers; docs/production.md, Core Settings",
        "minimum_check_interval": "1 ms, the shortest, rather than 250: a worker whose slots are "
        "full sleeps so long, and an idle one asks as often; docs/production.md, Core Settings",
        "execution_ttl": "0: no record of a finished task, for the most throughput; "
        "docs/production.md, Fire-and-Forget Mode",
        "logging": "warnings only; docs/production.md, Structured Logging",
        "max_connections": "1,000, in the URL: at least the concurrency; docs/production.md, "
        "Redis Connection Pools",
        "hiredis": "installed; redis-py README.md, Installation",
    }
    jobs = 5_000

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        logging.getLogger("docket").setLevel(logging.WARNING)
        self._noop, self._stamp = coroutines(self.tally)

    async def open(self) -> None:
        from docket import Docket as Library

        await super().open()
        docket = Library(name="bench", url=roomy(self.work.url), execution_ttl=timedelta(0))
        self._stack = contextlib.AsyncExitStack()
        self._docket: Any = await self._stack.enter_async_context(docket)
        self._docket.register(self._noop)
        self._docket.register(self._stamp)

    async def close(self) -> None:
        await self._stack.aclose()
        await super().close()

    async def prepare(self) -> None:
        """Make nothing: the worker makes stream and group."""

    async def enqueue(self, number: int) -> None:
        await self._docket.add(self._noop)(number)

    async def enqueue_stamped(self, sent: float) -> None:
        await self._docket.add(self._stamp)(sent)

    async def enqueue_bulk(self, numbers: Sequence[int]) -> None:
        call = self._docket.call
        await self._docket.add_many([call(self._noop)(number) for number in numbers])

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        from docket import Worker

        worker: Any = Worker(
            self._docket,
            concurrency=self.work.workers,
            minimum_check_interval=timedelta(milliseconds=1),
        )
        async with worker, beside(worker.run_forever()):
            yield

    async def is_drained(self, target: int) -> bool:
        # Entries leave the stream when they are acknowledged.
        return int(await self._asking.xlen(self._docket.stream_key)) == 0
