"""A primary behind sentinels: found, and found again after a failover."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta

import anyio
import pytest

from forge_jobs.errors import Unavailable
from forge_jobs.model.queues import Wake
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.testing.servers import RedisServer
from tests.support.redis_databases import opened
from tests.support.sentinels import SentinelFleet, is_primary, is_replica
from tests.support.silent import SILENT, frozen
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.long]

LONG = timedelta(seconds=30)


@pytest.fixture
def fleet() -> Iterator[SentinelFleet]:
    with ExitStack() as stack:
        yield SentinelFleet(stack)


async def write(database: Database, number: int) -> None:
    notes = [[each, "x", 1] for each in range(1, number + 1)]
    await database.run_one("schema", database.keys.fleet, ("migrate", notes), list[object])


async def test_the_primary_is_found_whichever_sentinel_answers(fleet: SentinelFleet) -> None:
    async with opened(fleet.url) as database:
        await write(database, 1)
        assert fleet.primary.command("EXISTS", f"{database.keys.fleet}:schema") == 1


async def test_an_unknown_service_is_unavailable(fleet: SentinelFleet) -> None:
    async with opened(fleet.url.replace("/main", "/other")) as database:
        with pytest.raises(Unavailable):
            await write(database, 1)


async def test_a_sentinel_that_points_at_a_replica_is_not_believed(fleet: SentinelFleet) -> None:
    fleet.primary.command("REPLICAOF", "127.0.0.1", fleet.replica.port)
    async with opened(fleet.url) as database:
        with pytest.raises(Unavailable):
            await write(database, 1)


async def test_after_a_failover_calls_go_to_the_new_primary(fleet: SentinelFleet) -> None:
    await fleet.replicated()
    async with opened(fleet.url, timeout=2) as database:
        assert (await database.wait(frozenset(), LONG)).beat
        await write(database, 1)
        await anyio.to_thread.run_sync(fleet.primary.kill)
        written = await wait_until(lambda: _written(database), description="a write goes through")
        assert written
        assert fleet.replica.command("HEXISTS", f"{database.keys.fleet}:schema", 2)
        # The listener has gone there too.
        assert await database.wait(frozenset(), LONG) == Wake(
            beat=True, handover=True, fleet=True, letters=True
        )
        fleet.replica.command("PUBLISH", database.keys.channel, "beat")
        assert await database.wait(frozenset(), LONG) == Wake(beat=True)


async def _written(database: Database) -> bool:
    try:
        await write(database, 2)
    except Unavailable:
        return False
    return True


async def test_an_old_primary_that_lives_on_is_left(fleet: SentinelFleet) -> None:
    await fleet.replicated()
    async with opened(fleet.url, timeout=5) as database:
        await write(database, 1)
        fleet.sentinel.command("SENTINEL", "FAILOVER", "main")
        await wait_until(lambda: is_primary(fleet.replica), description="it is the primary")
        # Until here both take writes, and the old one's will be lost: a server's rule, not ours.
        await wait_until(lambda: is_replica(fleet.primary), description="the old one is none")
        await wait_until(lambda: _written(database), description="a write goes through")
        assert fleet.replica.command("HEXISTS", f"{database.keys.fleet}:schema", 2)


@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("silence", SILENT)
async def test_a_silent_sentinel_stops_nothing(
    fleet: SentinelFleet, silence: str, place: str
) -> None:
    with SILENT[silence]() as port:
        async with opened(fleet.with_sentinel(port, place), timeout=40) as database:
            with anyio.fail_after(20):
                await write(database, 1)
                await anyio.to_thread.run_sync(fleet.primary.restart)
                await wait_until(lambda: _written(database), description="a write goes through")


async def test_calls_to_a_frozen_primary_end_when_another_is_chosen(fleet: SentinelFleet) -> None:
    await fleet.replicated()
    # A sentinel that is silent as well slows nothing down.
    with SILENT["mute"]() as port:
        async with opened(fleet.with_sentinel(port, "first"), timeout=40) as database:
            await write(database, 1)
            with frozen(fleet.primary.process_id):
                under_way = asyncio.create_task(write(database, 1))
                await wait_until(lambda: is_primary(fleet.replica), description="it is primary")
                with anyio.fail_after(20), pytest.raises(Unavailable):
                    await under_way
                await wait_until(lambda: _written(database), description="a write goes through")


async def test_checks_that_fail_leave_no_connection_behind(fleet: SentinelFleet) -> None:
    fleet.primary.command("REPLICAOF", "127.0.0.1", fleet.replica.port)
    async with opened(fleet.url) as database:
        for _ in range(10):
            with pytest.raises(Unavailable):
                await write(database, 1)
        servers = (fleet.primary, fleet.sentinel)
        await wait_until(
            lambda: all(_clients(server) <= 1 for server in servers),
            description="there is only the connection that asks",
        )


def _clients(server: RedisServer) -> int:
    """Connections of clients, the one that asks among them."""
    lines = str(server.command("CLIENT", "LIST", "TYPE", "normal")).splitlines()
    return sum("name=sentinel" not in line for line in lines)
