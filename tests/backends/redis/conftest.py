"""Fixtures of the tests of Redis."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from redis.asyncio import Redis

from forge_jobs.clock import ManualClock
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.testing.servers import RedisServer
from tests.support import key_prefixes, redis_keys, servers
from tests.support.aftermath import problems_of
from tests.support.proxy import Proxy, proxy
from tests.support.redis_databases import KEYS


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
