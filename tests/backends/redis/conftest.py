"""Fixtures of the tests of Redis."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from redis.asyncio import Redis

from forge_jobs.clock import ManualClock
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.testing.servers import RedisCluster, RedisServer
from tests.support import key_prefixes, redis_keys, servers
from tests.support.aftermath import problems_of
from tests.support.proxy import Proxy, proxy
from tests.support.redis_databases import KEYS
from tests.support.shards import Shards, a_cluster
from tests.support.shards import url_of as url_of_shards


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """The module's own, to be filled, emptied, killed and set up at will."""
    with servers.a_redis(durable=True) as started:
        yield started


@pytest.fixture
def between(server: RedisServer) -> Iterator[Proxy]:
    """A proxy before the server."""
    with proxy(server.url) as made:
        yield made


@pytest.fixture
async def client(server: RedisServer) -> AsyncGenerator[Redis]:
    """A client of an empty server. Keys of the store that a test leaves must be in order."""
    async with aclosing(Redis.from_url(server.url)) as made:
        await made.flushall()
        yield made
        assert await redis_keys.problems(made, KEYS.prefix) == []


@pytest.fixture
def url(server: RedisServer, client: Redis) -> str:
    """Of the store that ``client`` looks at."""
    return f"{server.url}?prefix={KEYS.prefix}"


@pytest.fixture
def clock() -> ManualClock:
    """The store's clock."""
    return ManualClock()


@pytest.fixture
async def storage(url: str, clock: ManualClock) -> AsyncGenerator[Storage]:
    """A store on the module's server."""
    async with await open_storage(url, clock=clock) as made:
        yield made


@pytest.fixture(params=["redis", "redis-cluster"])
async def either(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncGenerator[Storage]:
    """A store on one server, and on a cluster, where each queue is a step of its own."""
    made_url = key_prefixes.url_of(request.param, tmp_path)
    async with await open_storage(made_url, clock=clock) as made:
        yield made
    assert await problems_of(request.param, tmp_path) == []
    await key_prefixes.forget(request.param, tmp_path)


@pytest.fixture(scope="module")
def shard_cluster() -> Iterator[RedisCluster]:
    """The module's own cluster, of which one server is to fall silent."""
    with a_cluster() as started:
        yield started


@pytest.fixture
async def shards(shard_cluster: RedisCluster) -> AsyncGenerator[Shards]:
    """A store without a record on that cluster."""
    for node in shard_cluster.nodes:
        node.command("FLUSHALL")
    async with await open_storage(url_of_shards(shard_cluster)) as made:
        yield Shards(shard_cluster, made)
