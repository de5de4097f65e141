"""A host that never answers: sentinels and nodes of a cluster are asked several at once."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from datetime import timedelta
from functools import partial

import anyio
import pytest
from redis.crc import key_slot

from forge_jobs.errors import Unavailable
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.testing.servers import ClusterNode, RedisCluster
from tests.support import servers
from tests.support.proxy import proxy
from tests.support.redis_databases import opened
from tests.support.replicated_cluster import ReplicatedCluster
from tests.support.silent import SILENT, frozen
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.long]

LONGER_THAN_A_TEST_WAITS = 160
"""Seconds of one call, so that no test passes because a call to a silent host reached its limit."""


@pytest.fixture
async def replicated() -> AsyncGenerator[ReplicatedCluster]:
    with ReplicatedCluster() as cluster:
        await cluster.join()
        yield cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with servers.a_redis_cluster() as started:
        yield started


def with_host(url: str, port: int, place: str) -> str:
    """``url`` with one more host before or behind the others."""
    login, _, hosts = url.rpartition("@")
    more = f"127.0.0.1:{port}"
    return f"{login}@{more},{hosts}" if place == "first" else f"{login}@{hosts},{more}"


async def look(database: Database, base: str) -> list[object]:
    return await database.run_one("schema", base, ("look", []), list[object])


def bases_of(database: Database) -> list[str]:
    return [database.keys.queue(f"queue-{number}") for number in range(30)]


@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("silence", SILENT)
async def test_a_silent_node_named_in_the_url_stops_nothing(
    cluster: RedisCluster, silence: str, place: str
) -> None:
    with SILENT[silence]() as port:
        url = with_host(cluster.url, port, place)
        async with opened(url, timeout=LONGER_THAN_A_TEST_WAITS) as database:
            with anyio.fail_after(30):
                for base in bases_of(database):
                    assert await look(database, base) == []


@pytest.mark.parametrize("place", ["first", "last"])
async def test_a_frozen_node_is_left_for_its_replica(
    replicated: ReplicatedCluster, place: str
) -> None:
    frozen_one, *others = replicated.nodes
    nodes = [frozen_one, *others] if place == "first" else [*others, frozen_one]
    hosts = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
    url = f"redis+cluster://:{frozen_one.password}@{hosts}"
    replica = replicated.nodes[3]
    async with opened(url, timeout=LONGER_THAN_A_TEST_WAITS / 4) as database:
        bases = bases_of(database)
        for base in bases:
            await look(database, base)
        with frozen(frozen_one.process_id):
            under_way = [asyncio.create_task(look(database, base)) for base in bases]
            await wait_until(
                lambda: replica.command("ROLE")[0] == "master", description="its replica follows"
            )
            with anyio.fail_after(30):
                # The request to the frozen node is given up: the reply may have been lost.
                ended = await asyncio.gather(*under_way, return_exceptions=True)
                assert any(isinstance(each, Exception) for each in ended)
                for base in bases:
                    await wait_until(
                        partial(reached, database, base), description=f"{base} answers"
                    )


async def test_what_a_replaced_primary_takes_when_it_wakes_up_is_not_told_as_stored(
    replicated: ReplicatedCluster,
) -> None:
    """The primary has no replica any more, and forgets all when it hears of the new primary."""
    old, replica = replicated.nodes[0], replicated.nodes[3]
    async with opened(replicated.url, wait_replicas=1, wait_timeout=0.05) as database:
        bases = [
            base
            for base in map(database.keys.queue, map(str, range(90)))
            if replicated.owner_of(key_slot(base.encode())) is old
        ]
        request = ("create", [[1, "x", 1]])

        async def write(base: str) -> list[object]:
            return await database.run_one("schema", base, request, list[object])

        # Enough connections for all, so that nothing has to be said before the writes.
        await asyncio.gather(*(look(database, base) for base in bases[:20]))
        with frozen(old.process_id):
            await wait_until(
                lambda: replica.command("ROLE")[0] == "master", description="its replica follows"
            )
            under_way = [asyncio.create_task(write(base)) for base in bases[:20]]
            await anyio.wait_all_tasks_blocked()
        ended = await asyncio.gather(*under_way, return_exceptions=True)
        told = [base for base, each in zip(bases, ended, strict=False) if isinstance(each, list)]
        await replicated.whole()
        assert [base for base in told if not await look(database, base)] == []


async def reached(database: Database, base: str) -> bool:
    try:
        await look(database, base)
    except Unavailable:
        return False
    return True


async def test_queues_of_other_nodes_go_on_beside_a_frozen_one(cluster: RedisCluster) -> None:
    async with opened(cluster.url, timeout=LONGER_THAN_A_TEST_WAITS) as database:
        frozen_one = cluster.nodes[0]
        by_node = 16_384 // 3
        others = [base for base in bases_of(database) if key_slot(base.encode()) > by_node + 1]
        with frozen(frozen_one.process_id), anyio.fail_after(30):
            for base in others:
                assert await look(database, base) == []
        await anyio.to_thread.run_sync(cluster.wait_until_up)


async def test_a_silent_host_is_asked_last_from_then_on(cluster: RedisCluster) -> None:
    with proxy(cluster.nodes[0].url) as silent:
        silent.freeze()
        _, _, port = silent.url.rpartition("@")[2].partition("/")[0].partition(":")
        url = with_host(cluster.url, int(port), "first")
        async with opened(url, timeout=LONGER_THAN_A_TEST_WAITS) as database:
            base, *_ = bases_of(database)
            await look(database, base)
            assert silent.accepted == 1
            for _ in range(5):
                await database.servers.each()
                database.servers._is_stale = True  # type: ignore[attr-defined]
            assert silent.accepted == 1


async def test_the_listener_hears_beside_a_silent_node(cluster: RedisCluster) -> None:
    with SILENT["mute"]() as port:
        async with opened(with_host(cluster.url, port, "first")) as database:
            assert (await database.wait(frozenset(), timedelta(seconds=30))).beat


async def test_servers_that_name_each_other_as_owner_are_unavailable(
    cluster: RedisCluster,
) -> None:
    first, second, _ = cluster.nodes
    names = [str(node.command("CLUSTER MYID")) for node in (first, second)]
    async with opened(cluster.url, timeout=LONGER_THAN_A_TEST_WAITS) as database:
        base = next(b for b in bases_of(database) if key_slot(b.encode()) < 16_384 // 3)
        slot = key_slot(base.encode())
        await look(database, base)
        first.command("CLUSTER SETSLOT", slot, "NODE", names[1])
        second.command("CLUSTER SETSLOT", slot, "NODE", names[0])
        try:
            before = redirects(first) + redirects(second)
            with anyio.fail_after(30), pytest.raises(Unavailable, match="do not agree"):
                await look(database, base)
            # Bounded, and with pauses between.
            assert redirects(first) + redirects(second) - before < 20
        finally:
            for node in cluster.nodes:
                node.command("CLUSTER SETSLOT", slot, "NODE", names[0])
            await anyio.to_thread.run_sync(cluster.wait_until_up)


def redirects(node: ClusterNode) -> int:
    found = node.command("INFO", "errorstats").get("errorstat_MOVED", {})
    return int(found.get("count", 0))
