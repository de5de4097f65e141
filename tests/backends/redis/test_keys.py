"""The look over all keys notices what is wrong with any of them."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from redis.asyncio import Redis

from forge_jobs.model.jobs import After, Unique
from forge_jobs.storage.opening import open_storage
from forge_jobs.testing.servers import RedisServer
from tests.support import redis_keys
from tests.support.factories import claim_one, done, enqueue_one, register, run_one
from tests.support.redis_databases import KEYS

pytestmark = pytest.mark.anyio

BASE = KEYS.queue("default")
GHOST = "01JD0000000000000000000000"


@pytest.fixture
async def client(server: RedisServer) -> AsyncGenerator[Redis]:
    """Of a store with one job of each sort, in which all is well."""
    async with aclosing(Redis.from_url(server.url)) as made:
        await made.flushall()
        async with await open_storage(f"{server.url}?prefix={KEYS.prefix}") as storage:
            lease = await register(storage)
            await enqueue_one(storage, tags=("red",), schedule="nightly")
            await run_one(storage, lease, done("1"))
            parent = await enqueue_one(storage)
            await claim_one(storage, lease)
            await enqueue_one(storage, after=(After(parent),))
            await enqueue_one(storage, unique=Unique("k"))
        assert await redis_keys.problems(made, KEYS.prefix) == []
        yield made


@pytest.mark.parametrize(
    "command",
    [
        ("SET", f"{KEYS.prefix}-loose", "1"),
        ("SET", f"{KEYS.prefix}:wake", "1"),
        ("SET", f"{BASE}:unheard-of", "1"),
        ("SET", f"{KEYS.fleet}:unheard-of", "1"),
        ("SADD", f"{KEYS.queue('other')}:s:done", GHOST),
        ("HSET", f"{BASE}:j:{GHOST}", "status", "done", "finished", "1", "kind", "k"),
        ("ZADD", f"{BASE}:s:pending", "0", GHOST),
        ("ZADD", f"{BASE}:tag:red", "0", GHOST),
        ("DEL", f"{BASE}:schedule:nightly"),
        ("DEL", f"{BASE}:lines"),
        ("ZADD", f"{BASE}:ready:0 n tests.noop", "5", GHOST),
        ("ZADD", f"{BASE}:held", "5", GHOST),
        ("ZADD", f"{BASE}:expiring", "5", GHOST),
        ("ZADD", f"{BASE}:ended:dead", "5", GHOST),
        ("ZADD", f"{BASE}:results", "5", GHOST),
        ("ZADD", f"{BASE}:started", "5", GHOST),
        ("DEL", f"{BASE}:claimed"),
        ("SADD", f"{BASE}:own:{GHOST}", GHOST),
        ("HSET", f"{BASE}:owners", GHOST, "1"),
        ("HSET", f"{BASE}:unique", "free", GHOST),
        ("HDEL", f"{BASE}:unique", "k"),
        ("HSET", f"{BASE}:waits:{GHOST}", GHOST, "open"),
        ("RPUSH", f"{BASE}:err:{GHOST}", "{}"),
        ("HSET", f"{BASE}:told:7", GHOST, "default cancel"),
        ("ZADD", f"{BASE}:handovers", "5", f"7 {GHOST} done"),
        ("HSET", f"{BASE}:letter:{GHOST} 7", "kind", "k"),
        ("ZADD", f"{BASE}:letters:dead", "5", f"{GHOST} 7"),
        ("ZADD", f"{BASE}:letters", "5", "dead"),
        ("HSET", f"{BASE}:m:60000000", "claimed", "1"),
        ("ZADD", f"{BASE}:unfolded", "5", "5"),
        ("EXPIRE", f"{BASE}:s:done", "100"),
        ("HSET", f"{KEYS.prefix}:{{@1}}:ids", GHOST, "default\n1"),
        ("SREM", f"{KEYS.fleet}:queues", "default"),
    ],
    ids=" ".join,
)
async def test_one_thing_that_is_wrong_is_noticed(
    server: RedisServer, client: Redis, command: tuple[str, ...]
) -> None:
    server.command(*command)
    assert await redis_keys.problems(client, KEYS.prefix) != []


async def test_a_job_without_its_locator_is_noticed(client: Redis) -> None:
    [key, *_] = [key async for key in client.scan_iter(f"{KEYS.prefix}:*:ids")]
    await client.delete(key)
    assert await redis_keys.problems(client, KEYS.prefix) != []


async def test_a_job_that_is_not_plain_and_not_marked_is_noticed(client: Redis) -> None:
    for key in [key async for key in client.scan_iter(f"{BASE}:j:*")]:
        await client.hdel(key, "more")
    assert len(await redis_keys.problems(client, KEYS.prefix)) > 1


async def test_a_minute_that_would_stay_is_noticed(client: Redis) -> None:
    [key, *_] = [key async for key in client.scan_iter(f"{BASE}:m:*")]
    await client.persist(key)
    assert await redis_keys.problems(client, KEYS.prefix) != []


@pytest.mark.parametrize(
    ("ends_in", "problems"),
    [(0, []), (1, []), (redis_keys.NEVER, ["{default}:cool:k stays for ever"])],
)
def test_a_key_in_the_last_millisecond_ends_by_itself(ends_in: int, problems: list[str]) -> None:
    queues = (f"{KEYS.fleet}:queues", {"default"}, redis_keys.NEVER)
    window = (f"{BASE}:cool:k", f"{GHOST} 1 2", ends_in)
    assert redis_keys.problems_in([queues, window], KEYS.prefix) == problems
