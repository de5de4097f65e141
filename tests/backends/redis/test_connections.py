"""Between a store and one Redis server: nothing is sent twice, and every fault passes."""

import asyncio
import gc
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import suppress

import anyio
import pytest
import uvloop
from redis.exceptions import ConnectionError as NotConnected

from forge_jobs.errors import StorageError, StorageRefused, Unavailable
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.driver.address import parse_url
from forge_jobs.storage.redis.driver.connections import connect_to, converse
from forge_jobs.testing.servers import RedisServer
from tests.support.proxy import Proxy
from tests.support.redis_databases import opened
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

KEY = "test:{a}:number"


@pytest.fixture(autouse=True)
def _clean(server: RedisServer) -> None:
    server.command("FLUSHALL")


@pytest.fixture
async def database(between: Proxy) -> AsyncGenerator[Database]:
    async with opened(between.url, timeout=1) as made:
        yield made


async def increment(database: Database) -> int:
    [number] = await database.commands([("INCR", KEY)])
    return int(number)


def number(server: RedisServer) -> int:
    return int(server.command("GET", KEY) or 0)


async def script_time(database: Database) -> list[object]:
    """Runs a script of ours."""
    return await database.run_one("schema", database.keys.fleet, ("look", []), list[object])


async def test_a_command_whose_reply_is_lost_is_sent_once(
    server: RedisServer, between: Proxy, database: Database
) -> None:
    await increment(database)
    between.swallow_replies()
    with pytest.raises(Unavailable):
        await increment(database)
    between.heal()
    assert number(server) == 2
    assert await increment(database) == 3


async def test_a_command_whose_connection_ends_before_its_reply_is_sent_once(
    server: RedisServer, between: Proxy
) -> None:
    async with opened(between.url) as database:
        await increment(database)
        between.swallow_replies()
        call = asyncio.create_task(increment(database))
        await wait_until(lambda: number(server) == 2, description="it has run")
        # A caller that repeated the command now would get an answer.
        await anyio.to_thread.run_sync(between.heal)
        with pytest.raises(Unavailable):
            await call
        assert number(server) == 2


async def test_a_new_connection_whose_greeting_is_lost_sends_nothing(
    server: RedisServer, between: Proxy, database: Database
) -> None:
    between.swallow_replies()
    with pytest.raises(Unavailable):
        await increment(database)
    between.heal()
    assert number(server) == 0


async def test_a_script_whose_reply_is_lost_runs_once(
    server: RedisServer, between: Proxy, database: Database
) -> None:
    await script_time(database)
    server.command("CONFIG", "RESETSTAT")
    between.swallow_replies()
    with pytest.raises(Unavailable):
        await script_time(database)
    stats = server.command("INFO", "commandstats")
    assert stats["cmdstat_evalsha"]["calls"] == 1


@pytest.mark.parametrize("passed", [1, 3, 500, 70_000])
async def test_a_connection_cut_in_the_middle_of_a_reply(
    server: RedisServer, between: Proxy, database: Database, passed: int
) -> None:
    server.command("SET", KEY, "x" * 100_000)
    await database.commands([("GET", KEY)])
    between.cut_replies_after(passed)
    with pytest.raises(Unavailable):
        await database.commands([("GET", KEY)])
    between.heal()
    assert await database.commands([("GET", KEY)]) == [b"x" * 100_000]


async def test_calls_at_the_same_time_share_a_fault_and_all_recover(
    between: Proxy, database: Database
) -> None:
    await asyncio.gather(*(script_time(database) for _ in range(10)))
    between.swallow_replies()
    outcomes = await asyncio.gather(
        *(script_time(database) for _ in range(10)), return_exceptions=True
    )
    assert {type(outcome) for outcome in outcomes} == {Unavailable}
    between.heal()
    # One attempt is enough, on any connection.
    await asyncio.gather(*(script_time(database) for _ in range(10)))


async def test_a_server_that_refuses_connections_is_unavailable_and_comes_back(
    between: Proxy, database: Database
) -> None:
    between.refuse()
    with pytest.raises(Unavailable):
        await increment(database)
    between.heal()
    assert await increment(database) == 1


async def test_a_frozen_network_ends_by_the_time_limit(between: Proxy, database: Database) -> None:
    await increment(database)
    between.freeze()
    start = time.monotonic()
    with pytest.raises(Unavailable, match="no answer within 1 s"):
        await increment(database)
    assert time.monotonic() - start < 10
    between.heal()


async def test_a_restarted_server_works_at_once(server: RedisServer) -> None:
    async with opened(server.url) as database:
        await asyncio.gather(*(script_time(database) for _ in range(5)))
        await anyio.to_thread.run_sync(server.restart)
        assert await script_time(database) == []


async def test_a_killed_server_keeps_what_was_acknowledged(server: RedisServer) -> None:
    async with opened(server.url) as database:
        await increment(database)
        await anyio.to_thread.run_sync(server.kill)
        with pytest.raises(Unavailable):
            await increment(database)
        await anyio.to_thread.run_sync(server.start)
        assert await increment(database) == 2


async def test_forgotten_scripts_are_sent_again(server: RedisServer, database: Database) -> None:
    for _ in range(3):
        server.command("SCRIPT FLUSH")
        assert await script_time(database) == []


async def test_a_burst_waits_for_connections_instead_of_failing(server: RedisServer) -> None:
    before = server.command("INFO", "clients")["connected_clients"]
    most = before
    async with opened(server.url, pool_size=3) as database:

        async def one() -> None:
            nonlocal most
            await increment(database)
            most = max(most, server.command("INFO", "clients")["connected_clients"])

        await asyncio.gather(*(one() for _ in range(100)))
        assert number(server) == 100
        # Three of ours, and the one that asked.
        assert most <= before + 3


async def test_a_call_that_gets_no_connection_in_time_is_unavailable(
    between: Proxy, server: RedisServer
) -> None:
    async with opened(between.url, pool_size=1, timeout=1) as database:
        await increment(database)
        between.freeze()
        outcomes = await asyncio.gather(
            increment(database), increment(database), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [Unavailable, Unavailable]
        between.heal()
    assert number(server) <= 2


async def test_a_caller_that_goes_away_leaves_a_whole_call_behind(
    server: RedisServer, between: Proxy
) -> None:
    async with opened(between.url) as database:
        await increment(database)
        between.slow_down(replies=0.2)
        with anyio.move_on_after(0.05):
            await increment(database)
        await wait_until(lambda: number(server) == 2, description="the call is whole")
        # The connection is used again, and holds no reply of another call.
        assert await increment(database) == 3


async def test_an_error_whose_caller_has_gone_is_not_logged_as_forgotten(
    server: RedisServer,
    between: Proxy,
    database: Database,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await increment(database)
    between.swallow_replies()
    caller = asyncio.create_task(increment(database))
    await wait_until(lambda: number(server) == 2, description="it has run")
    caller.cancel()
    await asyncio.wait({caller})
    await database.close()
    gc.collect()
    assert caplog.messages == []


async def test_a_caller_ends_with_a_call_that_never_began(database: Database) -> None:
    before = asyncio.all_tasks()
    caller = asyncio.create_task(increment(database))
    await anyio.lowlevel.checkpoint()
    # As asyncio.run does at its end, though of the two tasks the caller is cancelled, too.
    for call in asyncio.all_tasks() - before - {caller}:
        call.cancel()
    await asyncio.wait({caller})
    assert caller.cancelled()


async def test_closing_waits_for_calls_under_way(server: RedisServer, between: Proxy) -> None:
    async with opened(between.url) as database:
        await increment(database)
        between.slow_down(requests=0.2)
        with anyio.move_on_after(0.05):
            await increment(database)
    assert number(server) == 2
    with pytest.raises(StorageError, match="closed"):
        await increment(database)


async def test_a_primary_that_becomes_a_replica_is_connected_to_anew(
    server: RedisServer, between: Proxy, database: Database
) -> None:
    await increment(database)
    server.command("REPLICAOF", "127.0.0.1", 1)
    server.command("CONFIG", "SET", "replica-serve-stale-data", "yes")
    try:
        made = between.accepted
        with pytest.raises(Unavailable, match="replica"):
            await increment(database)
        await wait_until(lambda: between.connections == 0, description="the connection is dropped")
    finally:
        server.command("REPLICAOF", "NO", "ONE")
    assert await increment(database) == 2
    assert between.accepted == made + 1


async def test_wrong_credentials_are_no_outage_and_stay_secret(server: RedisServer) -> None:
    url = server.url.replace(server.password, "hunter2")
    async with opened(url) as database:
        with pytest.raises(StorageRefused) as refused:
            await increment(database)
    assert "password" in str(refused.value)
    for secret in ("hunter2", str(server.port), "127.0.0.1"):
        assert secret not in repr(refused.value)
        assert refused.value.__cause__ is None


async def test_used_up_memory_refuses_writes_and_lets_reads_go_on(
    server: RedisServer, database: Database
) -> None:
    await script_time(database)
    server.command("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(Unavailable, match="memory"):
            await increment(database)
        assert await database.commands([("GET", KEY)]) == [None]
    finally:
        server.command("CONFIG", "SET", "maxmemory", "0")
    assert await increment(database) == 1


def test_a_connection_that_is_reset_while_idle_is_replaced_on_uvloop_too(between: Proxy) -> None:
    async def calls() -> None:
        async with opened(between.url) as database:
            for number in range(1, 20):
                assert await increment(database) == number
                await _reset(between)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(calls())


def test_a_reset_just_past_the_handshake_is_unavailable_on_uvloop_too(between: Proxy) -> None:
    async def call() -> None:
        url = parse_url(between.url)
        connection = await connect_to(url, url.hosts[0])
        await _reset(between)
        with pytest.raises(NotConnected):
            await converse(connection, [("PING",)])

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(call())


async def test_a_connection_that_fails_its_first_check_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = parse_url(f"redis+cluster://127.0.0.1:{mute.getsockname()[1]}?timeout=1")
        # The error keeps the cause, so the connection is not closed by garbage collection.
        with pytest.raises(TimeoutError) as failed:
            await connect_to(url, url.hosts[0])
        peer, _ = mute.accept()
        with peer, suppress(ConnectionResetError):
            # The client asked, got no answer, and is gone. Otherwise this call would wait.
            peer.settimeout(5)
            assert b"PING" in await anyio.to_thread.run_sync(peer.recv, 1000)
            assert await anyio.to_thread.run_sync(peer.recv, 1000) == b""
    assert failed.tb is not None


async def test_a_store_that_is_refused_at_its_opening_leaves_no_connection(
    server: RedisServer,
) -> None:
    def connected() -> int:
        return str(server.command("CLIENT", "LIST")).count("addr=")

    before = connected()
    server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(StorageError, match="maxmemory-policy"):
            await open_storage(server.url)
    finally:
        server.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
    await wait_until(lambda: connected() == before, description="nobody is connected any more")


async def _reset(between: Proxy) -> None:
    between.cut()
    # The loop has then seen the end, and so have the tasks of the loop.
    await wait_until(lambda: between.connections == 0, description="nothing is connected")
    for _ in range(10):
        await anyio.lowlevel.checkpoint()
