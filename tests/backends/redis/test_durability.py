"""The durability of a server is checked, reported in one line, and refused when too weak."""

import logging
from collections.abc import Iterator, Mapping

import anyio
import pytest
from redis.crc import key_slot

from forge_jobs.errors import StorageError, Unavailable
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.driver.address import parse_url
from forge_jobs.storage.redis.driver.durability import Findings, in_words, look
from forge_jobs.storage.redis.driver.replicas import Replicas, Wait
from forge_jobs.testing.servers import RedisServer
from tests.support import servers
from tests.support.factories import QUEUE, enqueue_one
from tests.support.redis_databases import opened, with_options
from tests.support.replicated_cluster import ReplicatedCluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def replica(server: RedisServer) -> Iterator[RedisServer]:
    settings = {"replicaof": f"127.0.0.1 {server.port}"}
    with servers.a_redis(settings=settings, password=server.password) as started:
        yield started


async def words(url: str, wait_replicas: int = 0) -> str:
    async with opened(url) as database:
        return in_words(await look(database.servers), wait_replicas)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"appendonly": "no", "save": ""}, "loses every job"),
        ({"appendonly": "no", "save": "60 1"}, "loses all since its last snapshot"),
        ({"appendonly": "yes", "appendfsync": "no"}, "last half minute"),
        ({"appendonly": "yes", "appendfsync": "everysec"}, "last second"),
        ({"appendonly": "yes", "appendfsync": "always"}, "a loss of power (appendonly"),
    ],
)
async def test_what_a_write_survives(
    server: RedisServer, settings: Mapping[str, str], said: str
) -> None:
    for name, value in settings.items():
        server.command("CONFIG", "SET", name, value)
    assert said in await words(server.url)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
async def test_a_server_that_drops_keys_is_refused_with_the_fix(
    server: RedisServer, policy: str
) -> None:
    server.command("CONFIG", "SET", "maxmemory-policy", policy)
    try:
        async with opened(server.url) as database:
            [found] = await look(database.servers)
    finally:
        server.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
    with pytest.raises(StorageError, match="set maxmemory-policy noeviction"):
        found.check(in_cluster=False)


@pytest.mark.parametrize(
    ("version", "accepted"),
    [("6.2.14", False), ("5.0", False), ("7.0.0", True), ("7.2.4", True), ("10.1.0", True)],
)
def test_a_server_that_is_too_old_is_refused(version: str, accepted: bool) -> None:
    found = Findings({"redis_version": version}, {})
    if accepted:
        found.check(in_cluster=False)
    else:
        with pytest.raises(StorageError, match=r"needs Redis 7\.0"):
            found.check(in_cluster=False)


async def test_a_server_of_a_cluster_is_refused_without_a_cluster_url() -> None:
    url = servers.redis_cluster_url().replace("+cluster", "").partition(",")[0]
    async with opened(url) as database:
        [found] = await look(database.servers)
    with pytest.raises(StorageError, match="give redis\\+cluster://"):
        found.check(in_cluster=False)


async def test_every_server_of_a_cluster_is_looked_at() -> None:
    async with opened(servers.redis_cluster_url()) as database:
        found = await look(database.servers)
    assert len(found) == 3
    for each in found:
        each.check(in_cluster=True)


@pytest.mark.parametrize(
    ("refused", "said"),
    [("config", "CONFIG is not allowed"), ("info", "INFO is not allowed"), ("", "always")],
)
async def test_a_user_who_may_not_look_is_told_so(
    server: RedisServer, refused: str, said: str
) -> None:
    server.command("CONFIG", "SET", "appendonly", "yes")
    server.command("CONFIG", "SET", "appendfsync", "always")
    rights = ["+@all", *([f"-{refused}"] if refused else [])]
    server.command("ACL", "SETUSER", "onlooker", "reset", "on", ">pw", "~*", "&*", *rights)
    url = server.url.replace(f":{server.password}@", "onlooker:pw@")
    async with opened(url) as database:
        [found] = await look(database.servers)
    found.check(in_cluster=False)
    assert said in in_words([found], 0)


async def test_a_report_leaves_out_what_the_user_may_not_ask_for(server: RedisServer) -> None:
    server.command("CONFIG", "SET", "maxmemory", "900mb")
    rights = ["+@all", "-info", "-config"]
    server.command("ACL", "SETUSER", "onlooker", "reset", "on", ">pw", "~*", "&*", *rights)
    async with await open_storage(server.url) as storage:
        whole = await storage.report()
    async with await open_storage(
        server.url.replace(f":{server.password}@", "onlooker:pw@")
    ) as storage:
        part = await storage.report()
    server.command("CONFIG", "SET", "maxmemory", "0")
    assert whole.memory_bound == 900 * 1024**2
    assert 0 < (whole.memory_bytes or 0) < whole.memory_bound
    assert (part.memory_bytes, part.memory_bound, part.replicas) == (None, None, None)
    assert part.schema_version == whole.schema_version


async def test_a_command_that_the_provider_took_away_is_no_error() -> None:
    with servers.a_redis(settings={"rename-command": 'CONFIG ""'}) as server:
        assert "snapshot" in await words(server.url)


async def write(database: Database, base: str = "") -> None:
    request = ("create", [[1, "x", 1]])
    await database.run_one("schema", base or database.keys.fleet, request, list[object])


async def connected(server: RedisServer, replicas: int) -> None:
    await wait_until(
        lambda: (
            server.command("INFO", "replication").get("slave0", {}).get("state") == "online"
            if replicas
            else server.command("INFO", "replication")["connected_slaves"] == 0
        ),
        description=f"{replicas} replicas are connected",
    )


@pytest.mark.long
async def test_replicas_are_part_of_the_line(server: RedisServer, replica: RedisServer) -> None:
    await connected(server, 1)
    assert "a failover to one of 1 replicas may lose the last writes" in await words(server.url)
    assert "each write waits for 1 of 1 replicas" in await words(server.url, 1)


async def test_a_write_waits_for_replicas_and_says_when_they_are_missed(
    server: RedisServer, replica: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "forge_jobs")
    await connected(server, 1)
    async with opened(server.url, wait_replicas=1, wait_timeout=20) as database:
        await write(database)
        assert int(replica.command("EXISTS", f"{database.keys.fleet}:schema")) == 1
        assert database.health().unreplicated == 0
    await anyio.to_thread.run_sync(replica.stop)
    await connected(server, 0)
    async with opened(server.url, wait_replicas=1, wait_timeout=0.05) as database:
        for _ in range(3):
            await write(database)
        # Reads wait for no replica.
        await database.commands([("HGETALL", f"{database.keys.fleet}:schema")])
        assert database.health().unreplicated == 3
        assert len(caplog.records) == 1
        await anyio.to_thread.run_sync(replica.start)
        await connected(server, 1)
    async with opened(server.url, wait_replicas=1, wait_timeout=20) as database:
        await write(database)
        assert database.health().unreplicated == 0


async def test_each_of_several_servers_says_once_that_it_misses_replicas(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with opened(servers.redis_cluster_url(), wait_replicas=1, wait_timeout=0.05) as database:
        for _ in range(2):
            for number in range(30):
                await write(database, database.keys.queue(str(number)))
    named = {record.getMessage().partition(" reached ")[0] for record in caplog.records}
    assert len(named) == len(caplog.records) == 3


@pytest.mark.long
async def test_replicas_that_one_of_several_servers_misses_are_no_matter_of_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Otherwise each write to another server would let the next one here wait once more."""
    caplog.set_level(logging.INFO, "forge_jobs")
    with ReplicatedCluster() as cluster:
        await cluster.join()
        alone, whole, *_ = cluster.nodes
        await anyio.to_thread.run_sync(cluster.replica_of(alone).kill)
        await connected(alone, 0)
        async with opened(cluster.url, timeout=20, wait_replicas=1, wait_timeout=3) as database:
            bases = {
                node: next(
                    base
                    for base in map(database.keys.queue, map(str, range(100)))
                    if cluster.owner_of(key_slot(base.encode())) is node
                )
                for node in (alone, whole)
            }
            for _ in range(10):
                for base in bases.values():
                    await write(database, base)
            assert database.health().unreplicated == 10
        [warning] = [record.getMessage() for record in caplog.records]
        assert f"{alone.port} reached 0 of 1 replicas within 3 s" in warning


def test_a_write_that_only_asked_says_nothing_of_replicas_that_are_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The answer may come after that of a write that has waited for the replicas."""
    caplog.set_level(logging.INFO, "forge_jobs")
    replicas = Replicas(parse_url("redis://somewhere?wait_replicas=1"))
    first, waiting, asking = (Wait(replicas) for _ in range(3))
    assert tuple(first) == ("WAIT", 1, 1000)
    first.ended(0)
    assert tuple(waiting) == ("WAIT", 1, 1000)
    assert tuple(asking) == ("WAIT", 0, 1)
    waiting.ended(1)
    asking.ended(0)
    assert replicas.unreplicated == 2
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert tuple(Wait(replicas)) == ("WAIT", 1, 1000)


async def test_a_server_told_to_refuse_without_replicas_is_unavailable(
    server: RedisServer,
) -> None:
    server.command("CONFIG", "SET", "min-replicas-to-write", "2")
    try:
        async with opened(server.url) as database:
            with pytest.raises(Unavailable, match="replicas"):
                await write(database)
            [found] = await look(database.servers)
    finally:
        server.command("CONFIG", "SET", "min-replicas-to-write", "0")
    assert found.settings["min-replicas-to-write"] == "2"


async def test_replicas_that_are_missing_fail_no_write_however_many_wait() -> None:
    options = {"wait_replicas": 1, "wait_timeout": 30, "timeout": 4, "pool_size": 2}
    with servers.a_redis() as alone:
        # The pool would need a minute if each write waited for so long.
        async with await open_storage(with_options(alone.url, **options)) as storage:
            async with anyio.create_task_group() as group:
                for _ in range(120):
                    group.start_soon(enqueue_one, storage)
            assert (await storage.jobs.counts())[QUEUE].due == 120
            assert storage.health().unreplicated >= 120


@pytest.mark.parametrize("allowed", ["config|get", "info"])
async def test_a_server_that_drops_keys_is_refused_by_whatever_may_be_asked(allowed: str) -> None:
    with servers.a_redis(settings={"maxmemory-policy": "allkeys-lru"}) as dropping:
        url = _onlooker(dropping, "+@all", "-info", "-config", f"+{allowed}")
        with pytest.raises(StorageError, match="maxmemory-policy allkeys-lru"):
            await open_storage(url)


async def test_a_server_that_tells_nothing_leaves_a_doubt_that_is_said(server: RedisServer) -> None:
    url = _onlooker(server, "+@all", "-info", "-config")
    async with await open_storage(url) as storage:
        assert "whether it drops keys when its memory is used up" in storage.durability


def _onlooker(server: RedisServer, *rights: str) -> str:
    server.command("ACL", "SETUSER", "onlooker", "reset", "on", ">pw", "~*", "&*", *rights)
    return server.url.replace(f":{server.password}@", "onlooker:pw@")
