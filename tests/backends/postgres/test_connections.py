"""Connections that are lost, slow, few or badly set up: nothing is lost and the next call works."""

import asyncio
import threading
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from sqlalchemy import text

from forge_jobs.clock import SystemClock
from forge_jobs.errors import InvalidInput, NotFound, StorageError, Unavailable
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.jobs.enqueue import enqueue
from forge_jobs.storage.sql.postgres.driver.connections import PostgresConnection
from tests.support.factories import QUEUE, claim, enqueue_one, new_job, register
from tests.support.postgres import (
    a_role,
    as_user,
    database_of,
    raw,
    sleeping,
    terminate_others,
    with_options,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


async def stored(storage: Storage) -> int:
    return sum((await storage.jobs.counts([QUEUE]))[QUEUE].by_status.values())


async def test_calls_after_every_connection_was_ended_do_not_notice(
    storage: Storage, url: str
) -> None:
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(enqueue_one, storage)
    assert await terminate_others(url) >= 2
    for _ in range(5):
        await enqueue_one(storage)
    assert await stored(storage) == 10


async def test_a_loss_that_the_program_has_not_noticed_yet_is_made_good(
    storage: Storage, url: str
) -> None:
    await enqueue_one(storage)
    # This event loop stands still meanwhile, so the socket cannot report the loss.
    thread = threading.Thread(target=lambda: asyncio.run(terminate_others(url)))
    thread.start()
    thread.join()
    await enqueue_one(storage)
    assert await stored(storage) == 2


async def test_a_connection_that_is_ended_while_it_is_opened_is_not_left_behind(
    storage: Storage, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute, ended = PostgresConnection.execute, list[int]()

    async def is_ended_first(self: PostgresConnection, statement: str) -> None:
        if statement == "ROLLBACK" and not ended:
            ended.append(await terminate_others(url))
        await execute(self, statement)

    assert await terminate_others(url) >= 1
    monkeypatch.setattr(PostgresConnection, "execute", is_ended_first)
    with pytest.raises(Unavailable):
        await stored(storage)
    assert ended
    # The garbage collector would report the connection: ``no_errors_of_libraries``.
    assert await stored(storage) == 0


async def test_a_call_whose_connection_is_ended_fails_whole_and_the_next_one_works(
    storage: Storage, url: str
) -> None:
    failed: list[BaseException] = []

    async def call() -> None:
        try:
            await database_of(storage).write(sleeping(30, lambda tx: enqueue(tx, [new_job()])))
        except Unavailable as error:
            failed.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        async with raw(url) as connection:
            await wait_until(
                lambda: connection.fetchval(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                    " WHERE query LIKE '%pg_sleep(30)%' AND pid <> pg_backend_pid()"
                ),
                description="the call is in the server",
            )
    assert len(failed) == 1
    assert await stored(storage) == 0
    await enqueue_one(storage)
    assert await stored(storage) == 1


def _behind_a_lock(tx: Tx) -> None:
    tx.execute(text("SET LOCAL lock_timeout = 0"))
    tx.execute(text("SELECT pg_advisory_xact_lock(7)"))
    enqueue(tx, [new_job()])


@pytest.mark.parametrize("how", ["scope", "task"])
async def test_a_caller_that_is_cancelled_leaves_the_call_to_end_by_itself(
    storage: Storage, url: str, how: str
) -> None:
    database = database_of(storage)
    async with raw(url) as connection:
        await connection.execute("SELECT pg_advisory_lock(7)")
        if how == "scope":
            with anyio.move_on_after(0.05) as scope:
                await database.write(_behind_a_lock)
            assert scope.cancelled_caught
        else:
            task = asyncio.ensure_future(database.write(_behind_a_lock))
            await asyncio.wait([task], timeout=0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await stored(storage) == 0

    async def is_stored() -> bool:
        return await stored(storage) == 1

    await wait_until(is_stored, description="the script has ended")


async def test_closing_waits_for_calls_that_nobody_waits_for(url: str) -> None:
    async with await open_storage(url) as storage:
        with anyio.move_on_after(0.05):
            await database_of(storage).write(sleeping(0.3, lambda tx: enqueue(tx, [new_job()])))
    async with await open_storage(url) as storage:
        assert await stored(storage) == 1


async def test_a_statement_beyond_the_time_limit_is_given_up(url: str) -> None:
    async with await open_storage(with_options(url, timeout=1)) as storage:
        with pytest.raises(Unavailable, match="too long"):
            await database_of(storage).write(sleeping(30, lambda tx: None))
        await enqueue_one(storage)


async def test_a_call_that_finds_no_free_connection_in_time_says_so(url: str) -> None:
    async with await open_storage(with_options(url, timeout=1, pool_size=1)) as storage:
        until = SystemClock().elapsed() + 60
        async with database_of(storage)._connections.one(until, once=False):
            with pytest.raises(Unavailable, match="1 connections of the pool"):
                await storage.jobs.counts()


async def test_the_role_may_prefer_any_isolation(url: str) -> None:
    name = url.rsplit("/", 1)[1]
    async with raw(url) as connection:
        for setting in (
            "default_transaction_isolation = 'serializable'",
            "default_transaction_read_only = on",
            "search_path = nowhere",
            "plan_cache_mode = force_generic_plan",
        ):
            await connection.execute(f"ALTER DATABASE {name} SET {setting}")
    async with await open_storage(url) as storage:
        lease = await register(storage)
        await storage.jobs.enqueue([new_job() for _ in range(60)])
        got: list[str] = []

        async def drain() -> None:
            while found := await claim(storage, lease, limit=3):
                got.extend(each.claim.job_id for each in found)

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(drain)
    assert len(got) == len(set(got)) == 60


async def test_nothing_is_set_on_a_session_behind_a_pooler(url: str) -> None:
    async with await open_storage(with_options(url, pgbouncer="true", wake="poll")) as storage:
        await enqueue_one(storage)
        [idle] = database_of(storage)._connections._idle
        for name, value in (
            ("search_path", '"$user", public'),
            ("default_transaction_isolation", "read committed"),
            ("statement_timeout", "0"),
            ("lock_timeout", "0"),
            ("idle_in_transaction_session_timeout", "0"),
        ):
            assert await idle._driver.fetchval(f"SHOW {name}") == value


async def test_statements_alone_run_under_the_limits_of_transactions(url: str) -> None:
    async with raw(url) as connection:
        await connection.execute(
            "DO $$ BEGIN EXECUTE format("
            "'ALTER DATABASE %I SET default_transaction_isolation = serializable', "
            "current_database()); END $$"
        )
    async with await open_storage(with_options(url, timeout="7", wake="poll")) as storage:
        await enqueue_one(storage)
        await enqueue_one(storage)  # The first declares the queue, and is a script.
        [idle] = database_of(storage)._connections._idle
        for name, value in (
            ("search_path", '"public"'),
            ("default_transaction_isolation", "read committed"),
            ("default_transaction_read_only", "off"),
            ("statement_timeout", "7s"),
            ("lock_timeout", "100ms"),
            ("idle_in_transaction_session_timeout", "10s"),
        ):
            assert await idle._driver.fetchval(f"SHOW {name}") == value


async def test_few_connections_are_opened_by_calls_that_come_one_by_one(
    storage: Storage, url: str
) -> None:
    for _ in range(20):
        await enqueue_one(storage)
    async with raw(url) as connection:
        count = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        )
    assert count == 2, "one of the store, one of the test"


async def test_a_value_beyond_64_bits_is_bad_input(storage: Storage) -> None:
    lease = await register(storage)
    with pytest.raises(InvalidInput, match="64 bits"):
        await storage.jobs.heartbeat(lease, [], timedelta.max)


async def test_errors_of_the_driver_show_nothing_of_it(url: str, tmp_path: Path) -> None:
    wrong: list[tuple[str, type[StorageError]]] = [
        (f"{url}_missing", NotFound),
        (as_user(url, "nobody_here", "secret-word"), StorageError),
        ("postgresql://user:secret-word@127.0.0.1:1/database", Unavailable),
    ]
    for each, kind in wrong:
        with pytest.raises(kind) as caught:
            await open_storage(each)
        shown = f"{caught.value!r} {caught.value.__cause__!r}"
        assert "secret-word" not in shown
        assert "asyncpg" not in shown
        # Which server does not answer is said, because people have several.
        assert ("127.0.0.1:1" in shown) is (kind is Unavailable)


async def test_the_password_is_never_shown(url: str) -> None:
    async with (
        a_role(url, "secret-word") as its_url,
        await open_storage(with_options(its_url, pool_size=2, schema="its_own")) as storage,
    ):
        assert "secret-word" not in repr(storage)
        assert "secret-word" not in repr(database_of(storage).options)
        assert "127.0.0.1" not in repr(storage)


async def test_a_store_that_does_not_exist_is_not_made_when_not_asked_to(url: str) -> None:
    elsewhere = with_options(url, schema="elsewhere")
    with pytest.raises(NotFound):
        await open_storage(elsewhere, create=False)
    async with await open_storage(elsewhere):
        pass
    async with await open_storage(elsewhere, create=False) as storage:
        assert await storage.jobs.counts() == {}


@pytest.mark.parametrize(
    "wrong",
    [
        "postgresql://",
        "postgresql://host",
        "postgresql://host:port/database",
        "postgresql://host/database?pool_size=0",
        "postgresql://host/database?timeout=never",
        "postgresql://host/database?wake=sometimes",
        "postgresql://host/database?direct=nowhere",
        "postgresql://host/database?schema=",
        "postgresql://host/database?shema=jobs",
        "postgresql://user:secret-word@[host/database",
    ],
)
async def test_a_wrong_url_is_bad_input(wrong: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await open_storage(wrong)
    assert caught.value.field == "url"
    assert "secret-word" not in str(caught.value)


async def test_a_scripts_own_error_rolls_back_and_reaches_the_caller(storage: Storage) -> None:
    def script(tx: Tx) -> None:
        enqueue(tx, [new_job()])
        tx.execute(text("SELECT 1"))
        raise NotFound("of the script")

    with pytest.raises(NotFound, match="of the script"):
        await database_of(storage).write(script)
    assert await stored(storage) == 0


async def test_health_says_how_many_calls_had_to_wait_for_a_connection(url: str) -> None:
    async with await open_storage(with_options(url, pool_size=1)) as storage:
        before = storage.health()
        assert (before.pool_size, before.pool_in_use) == (1, 0)
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(storage.jobs.counts)
        after = storage.health()
    # One call has the connection, and the others wait.
    assert after.pool_waits - before.pool_waits == 2
    assert after.pool_in_use == 0
