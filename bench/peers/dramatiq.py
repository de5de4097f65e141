"""dramatiq 2.2, https://dramatiq.io: threads, on Redis.

The actors are plain functions here: a coroutine would hop to another thread for each job.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bench.peers.redis_connected import roomy
from bench.peers.running import functions
from bench.side import Side, Work


class Dramatiq(Side):
    """The default middleware, without the Prometheus exporter."""

    name = "dramatiq"
    store = "redis"
    requirements = ("dramatiq[redis]==2.2.1", "hiredis==3.5.0")
    settings = {
        "worker_threads": "the workers; docs/source/reference.rst, Workers",
        "dramatiq_queue_prefetch": "ten times the threads rather than twice: its consumer sleeps "
        "when it holds so many; docs/source/reference.rst, Environment Variables",
        "max_connections": "1,000, in the URL; redis-py docs/connections.rst, Connection Pools",
        "hiredis": "installed; redis-py README.md, Installation",
    }
    jobs = 8_000
    threads = True

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        # Read when the library is imported.
        os.environ["dramatiq_queue_prefetch"] = str(10 * work.workers)  # noqa: SIM112 - its own name
        import dramatiq
        from dramatiq.brokers.redis import RedisBroker

        self._broker: Any = RedisBroker(url=roomy(work.url))
        dramatiq.set_broker(self._broker)
        noop, stamp = functions(self.tally)
        self._noop: Any = dramatiq.actor(actor_name="noop")(noop)
        self._stamp: Any = dramatiq.actor(actor_name="stamp")(stamp)

    async def open(self) -> None:
        """Do nothing: the pool connects with the first call."""

    async def close(self) -> None:
        self._broker.close()

    async def prepare(self) -> None:
        """There is nothing to make."""

    async def enqueue(self, number: int) -> None:
        self._noop.send(number)

    async def enqueue_stamped(self, sent: float) -> None:
        self._stamp.send(sent)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        import dramatiq

        worker = dramatiq.Worker(self._broker, worker_threads=self.work.workers)
        worker.start()
        try:
            yield
        finally:
            await asyncio.to_thread(worker.stop)

    async def is_drained(self, target: int) -> bool:
        # A message leaves this hash when it is acknowledged.
        return int(self._broker.client.hlen("dramatiq:default.msgs")) == 0
