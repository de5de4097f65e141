"""A database that moves to another server: the pool and the listener follow."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from datetime import timedelta
from urllib.parse import urlsplit

import anyio
import pytest

from forge_jobs.errors import StorageError, Unavailable
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.postgres import listening
from forge_jobs.storage.sql.postgres.driver import connections
from forge_jobs.testing.servers import PostgresServer
from forge_jobs.testing.standby import PostgresStandby
from tests.support.factories import QUEUE, enqueue_one
from tests.support.postgres import a_role, raw, terminate_others, with_options
from tests.support.proxy import proxy
from tests.support.servers import a_postgres, a_standby
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

LIMIT_S = 1
MINE = frozenset({QUEUE})
SHORT = timedelta(milliseconds=50)


@pytest.fixture(scope="module")
def primary() -> Iterator[PostgresServer]:
    with a_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def standby(primary: PostgresServer) -> Iterator[PostgresStandby]:
    with a_standby(primary) as server:
        yield server


async def counted(storage: Storage) -> int:
    return sum((await storage.jobs.counts([QUEUE]))[QUEUE].by_status.values())


async def on_both(url: str, standby: PostgresStandby) -> None:
    """The standby has what the primary has."""
    async with raw(url) as there:
        written = await there.fetchval("SELECT pg_current_wal_insert_lsn()::text")
    async with raw(standby.url) as copy:
        await wait_until(
            lambda: copy.fetchval("SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", written),
            description="the standby has caught up",
        )


@pytest.mark.long
async def test_a_pool_that_has_reached_a_standby_is_back_with_the_next_call(
    primary: PostgresServer, standby: PostgresStandby
) -> None:
    with proxy(primary.url) as between:
        async with await open_storage(with_options(between.url, schema="reached")) as storage:
            await several_at_once(storage)
            await on_both(primary.url, standby)
            between.lead_to(standby.url)
            await terminate_others(primary.url)
            for _ in range(5):
                with pytest.raises(Unavailable, match="standby"):
                    await enqueue_one(storage)
            await storage.jobs.counts()  # A call that reads leaves a connection there.
            # The connections to the standby stay open.
            between.lead_to(primary.url)
            await back_within(1, storage)


async def several_at_once(storage: Storage, count: int = 5) -> None:
    """As many connections as calls."""
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(enqueue_one(storage))
    await enqueue_one(storage)
    await enqueue_one(storage)


async def back_within(calls: int, storage: Storage) -> None:
    """So many calls may fail, and then they go well."""
    failed = 0
    while True:
        try:
            await enqueue_one(storage)
        except Unavailable:
            failed += 1
            assert failed <= calls
        else:
            break
    for _ in range(10):
        await enqueue_one(storage)


async def test_connections_that_have_gone_silent_cost_one_call_together(
    primary: PostgresServer,
) -> None:
    with proxy(primary.url) as between:
        options = {"schema": "silent", "timeout": LIMIT_S}
        async with await open_storage(with_options(between.url, **options)) as storage:
            await several_at_once(storage)
            assert between.connections >= 3
            between.silence()
            await back_within(1, storage)


async def test_a_script_that_begins_on_a_silent_connection_goes_on_with_another(
    primary: PostgresServer,
) -> None:
    with proxy(primary.url) as between:
        options = {"schema": "silent", "timeout": LIMIT_S}
        async with await open_storage(with_options(between.url, **options)) as storage:
            await several_at_once(storage)
            between.silence()
            # The first that lay idle is given up in time for one that is new.
            assert await counted(storage) >= 7


async def test_a_connection_that_was_idle_for_long_is_not_used_again(
    primary: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxy(primary.url) as between:
        async with await open_storage(
            with_options(between.url, schema="old", wake="poll")
        ) as storage:
            await several_at_once(storage)
            opened = between.accepted
            await enqueue_one(storage)
            assert between.accepted == opened
            # As if a minute had passed.
            monkeypatch.setattr(connections, "LONGEST_IDLE_S", -1.0)
            await enqueue_one(storage)
            assert between.accepted == opened + 1
            await wait_until(lambda: between.connections == 1, description="the old ones are gone")


async def test_a_refused_login_is_made_good_with_the_right_password_back(
    primary: PostgresServer,
) -> None:
    async def has_password(password: str) -> None:
        async with raw(primary.url) as admin:
            await admin.execute(f"ALTER ROLE {user} PASSWORD '{password}'")

    async with a_role(primary.url, "right") as its_url:
        user = urlsplit(its_url).username
        async with await open_storage(with_options(its_url, schema="login")) as storage:
            await several_at_once(storage)
            await has_password("another")
            await terminate_others(primary.url)
            for _ in range(3):
                with pytest.raises(StorageError, match="login"):
                    await enqueue_one(storage)
            await has_password("right")
            await back_within(0, storage)


@pytest.fixture
async def moving(
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncGenerator[tuple[PostgresServer, PostgresStandby, str]]:
    """Yield a primary, a standby, and a URL of both: the standby first."""
    monkeypatch.setattr(listening, "PING_EVERY_S", 0.2)
    with a_postgres() as first, a_standby(first) as second:
        login = urlsplit(first.url).netloc.rpartition("@")[0]
        netloc = f"{login}@127.0.0.1:{second.port},127.0.0.1:{first.port}"
        yield first, second, urlsplit(first.url)._replace(netloc=netloc).geturl()


@pytest.mark.daily("killed")
@pytest.mark.parametrize("how", ["killed", "silent"])
async def test_a_store_of_two_hosts_follows_the_primary(
    moving: tuple[PostgresServer, PostgresStandby, str], how: str
) -> None:
    first, second, url = moving
    with proxy(first.url) as between:
        there = url.replace(f":{first.port}/", f":{urlsplit(between.url).port}/")
        async with await open_storage(with_options(there, timeout=LIMIT_S)) as storage:
            await several_at_once(storage)
            while await storage.jobs.wait_for_work(MINE, SHORT):
                pass
            assert storage.health().wakes
            await on_both(first.url, second)
            if how == "killed":
                first.kill()
                between.refuse()
            else:
                between.freeze()
            with pytest.raises(Unavailable):
                await enqueue_one(storage)
            second.promote()
            await back_within(1, storage)
            assert await counted(storage) >= 18
            await wait_until(lambda: storage.health().wakes, description="it listens again")
            async with await open_storage(second.url) as other:
                while await storage.jobs.wait_for_work(MINE, SHORT):
                    pass
                await enqueue_one(other)
                with anyio.fail_after(20):
                    assert await storage.jobs.wait_for_work(MINE, timedelta(seconds=60))
