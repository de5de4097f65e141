"""A cluster of servers: slots that move, servers that end, and what is asked of which."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Iterator

import anyio
import pytest
from redis.crc import key_slot

from forge_jobs.errors import StorageError, Unavailable
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.testing.servers import RedisCluster
from tests.support import servers
from tests.support.redis_databases import opened
from tests.support.slots import Move, owner
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with servers.a_redis_cluster(durable=True) as started:
        yield started


@pytest.fixture
async def database(cluster: RedisCluster) -> AsyncGenerator[Database]:
    async with opened(cluster.url, timeout=5) as made:
        yield made


async def look(database: Database, base: str) -> list[object]:
    """Runs a script of ours that reads one hash under the base."""
    return await database.run_one("schema", base, ("look", []), list[object])


async def note(database: Database, base: str) -> None:
    """Runs a script of ours that writes under the base."""
    await database.run_one("schema", base, ("create", [[1, "x", 1]]), list[object])


def test_bases_of_queues_are_spread_over_the_servers(cluster: RedisCluster) -> None:
    owners = {owner(cluster, key_slot(f"p:{{queue-{n}}}".encode())).port for n in range(30)}
    assert len(owners) == 3


async def test_many_bases_in_one_call(database: Database) -> None:
    bases = [database.keys.queue(f"queue-{n}") for n in range(50)]
    await database.run("schema", dict.fromkeys(bases, ("create", [[1, "x", 1]])), list[object])
    found = await database.run("schema", dict.fromkeys(bases, ("look", [])), list[object])
    assert list(found) == bases
    assert all(len(rows) == 1 for rows in found.values())


async def test_commands_for_many_servers_come_back_in_order(database: Database) -> None:
    keys = [database.keys.queue(f"queue-{n}") + ":number" for n in range(50)]
    await database.commands([("SET", key, n) for n, key in enumerate(keys)])
    replies = await database.commands([("GET", key) for key in keys])
    assert [int(reply) for reply in replies] == list(range(50))


async def test_a_slot_that_has_moved_is_followed(database: Database, cluster: RedisCluster) -> None:
    base = database.keys.queue("moved")
    await note(database, base)
    for _ in range(3):
        move = Move(cluster, key_slot(base.encode()))
        move.begin()
        move.end()
        assert len(await look(database, base)) == 1


async def test_a_script_waits_while_the_keys_of_its_slot_are_on_their_way(
    database: Database, cluster: RedisCluster
) -> None:
    base = database.keys.queue("moving")
    await note(database, base)
    await database.commands([("SET", f"{base}:other-{n}", n) for n in range(10)])
    move = Move(cluster, key_slot(base.encode()))
    move.begin()
    await anyio.to_thread.run_sync(move.move_keys, 5)
    ended: list[int] = []

    async def call() -> None:
        ended.append(len(await look(database, base)))

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        asked = move.source
        await wait_until(
            lambda: asked.command("INFO", "errorstats").get("errorstat_ASK"),
            description="the source has turned the script away",
        )
        # Half the keys are here and half there: an answer now would be wrong.
        assert not ended
        await anyio.to_thread.run_sync(move.end)
    assert ended == [1]


async def test_a_move_that_takes_too_long_is_unavailable(
    database: Database, cluster: RedisCluster
) -> None:
    async with opened(cluster.url, timeout=1) as impatient:
        base = database.keys.queue("slow")
        await note(database, base)
        move = Move(cluster, key_slot(base.encode()))
        move.begin()
        with pytest.raises(Unavailable):
            await look(impatient, base)
        move.end()
        assert len(await look(database, base)) == 1


async def test_a_command_to_a_frozen_server_is_sent_once(
    database: Database, cluster: RedisCluster
) -> None:
    async with opened(cluster.url, timeout=1) as impatient:
        key = database.keys.queue("frozen") + ":number"
        await database.commands([("INCR", key)])
        node = owner(cluster, key_slot(key.encode()))
        os.kill(node.process_id, signal.SIGSTOP)
        try:
            with pytest.raises(Unavailable):
                await impatient.commands([("INCR", key)])
        finally:
            os.kill(node.process_id, signal.SIGCONT)
        # The server answers again at once, and has run the command once.
        await anyio.to_thread.run_sync(cluster.wait_until_up)
        assert await database.commands([("INCR", key)]) in ([2], [3])


async def test_a_server_that_is_killed_and_comes_back(
    database: Database, cluster: RedisCluster
) -> None:
    bases = [database.keys.queue(f"killed-{n}") for n in range(30)]
    for base in bases:
        await note(database, base)
    node = owner(cluster, key_slot(bases[0].encode()))
    await anyio.to_thread.run_sync(node.kill)
    with pytest.raises(Unavailable):
        await look(database, bases[0])
    await anyio.to_thread.run_sync(cluster.start)
    found = await asyncio.gather(*(look(database, base) for base in bases))
    assert [len(rows) for rows in found] == [1] * 30


async def test_one_server_that_is_known_is_enough(cluster: RedisCluster) -> None:
    user, _, hosts = cluster.url.rpartition("@")
    url = f"{user}@127.0.0.1:1,{hosts.rpartition(',')[2]}"
    async with opened(url) as database:
        bases = [database.keys.queue(f"queue-{n}") for n in range(30)]
        assert await asyncio.gather(*(look(database, base) for base in bases)) == [[]] * 30


async def test_a_server_that_is_no_part_of_a_cluster_is_refused_with_the_fix() -> None:
    url = servers.redis_url().replace("redis://", "redis+cluster://")
    async with opened(url) as database:
        with pytest.raises(StorageError, match="give redis://"):
            await look(database, database.keys.fleet)
