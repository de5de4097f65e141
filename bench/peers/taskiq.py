"""taskiq 0.13 with taskiq-redis 1.2, https://taskiq-python.github.io: Redis streams."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bench.peers.redis_connected import RedisSide
from bench.peers.running import beside, coroutines

STREAM = "taskiq"
POOL_SIZE = 200
PREFETCH = 100


class Taskiq(RedisSide):
    """The only broker of Taskiq that acknowledges."""

    name = "taskiq"
    requirements = (
        "taskiq==0.13.0",
        "taskiq-redis==1.2.4",
        "hiredis==3.5.0",
        "orjson==3.13.0",
    )
    settings = {
        "broker": "RedisStreamBroker; README.md of taskiq-redis, Brokers: the one that supports "
        "acknowledgements",
        "xread_count": "100, the default; API, taskiq_redis.RedisStreamBroker",
        "consumer_id": "0, so that a worker sees what was enqueued before it; API, "
        "taskiq_redis.RedisStreamBroker",
        "max_connection_pool_size": "200: at least one per worker and one more; API, "
        "taskiq_redis.RedisStreamBroker",
        "max_async_tasks": "the workers; docs/guide/cli.md, Other parameters",
        "max_prefetch": "100 rather than 0, for high rates; docs/guide/cli.md, Other parameters",
        "validate_params": "False: arguments are not cast; docs/guide/cli.md, Type casts",
        "ack_time": "when_executed: no result is stored here; docs/guide/cli.md, Acknowledgements",
        "serializer": "ORJSONSerializer, the faster one; docs/guide/message-format.md, Serializers",
        "hiredis": "installed; redis-py README.md, Installation",
    }
    jobs = 10_000

    async def open(self) -> None:
        from taskiq.serializers import ORJSONSerializer
        from taskiq_redis import RedisStreamBroker

        await super().open()
        # A broker that was shut down stays so: each opening makes another.
        self._broker: Any = RedisStreamBroker(
            self.work.url,
            queue_name=STREAM,
            consumer_id="0",
            max_connection_pool_size=POOL_SIZE,
        ).with_serializer(ORJSONSerializer())
        noop, stamp = coroutines(self.tally)
        self._noop: Any = self._broker.task(task_name="noop")(noop)
        self._stamp: Any = self._broker.task(task_name="stamp")(stamp)
        await self._broker.startup()

    async def close(self) -> None:
        await self._broker.shutdown()
        await super().close()

    async def prepare(self) -> None:
        async with self:
            pass

    async def enqueue(self, number: int) -> None:
        await self._noop.kiq(number)

    async def enqueue_stamped(self, sent: float) -> None:
        await self._stamp.kiq(sent)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        from taskiq.acks import AcknowledgeType
        from taskiq.api import run_receiver_task

        receiver = run_receiver_task(
            self._broker,
            max_async_tasks=self.work.workers,
            max_prefetch=PREFETCH,
            validate_params=False,
            ack_time=AcknowledgeType.WHEN_EXECUTED,
        )
        async with beside(receiver):
            yield

    async def is_drained(self, target: int) -> bool:
        return await self._is_acknowledged(STREAM)
