"""Scripts and statements take turns on one session, and each finds the session set up."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from itertools import product

import pytest
from sqlalchemy import text

from forge_jobs.errors import NotFound, StorageError
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.postgres.database import PostgresDatabase
from forge_jobs.storage.sql.postgres.direct import Direct
from tests.support.asked import asked
from tests.support.postgres import a_role, database_of, raw, with_options

pytestmark = pytest.mark.anyio

NAMES = (
    "search_path",
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "transaction_isolation",
    "transaction_read_only",
    "plan_cache_mode",
    "enable_seqscan",
    "enable_hashjoin",
    "enable_mergejoin",
)
SHOW = f"SELECT {', '.join(f'current_setting({name!r}) AS {name}' for name in NAMES)}"
BY_INDEX = ("force_generic_plan", "off", "off", "off")
# The settings of the role.
AS_BEGUN = ("force_custom_plan", "on", "off", "on")


def expected(patience: str, isolation: str, read_only: str, plans: Sequence[str]) -> list[str]:
    return ['"its_own"', "7s", patience, "10s", isolation, read_only, *plans]


EXPECTED = {
    "once": expected("100ms", "read committed", "off", BY_INDEX),
    "anyhow": expected("3500ms", "read committed", "off", AS_BEGUN),
    "write": expected("3500ms", "read committed", "off", AS_BEGUN),
    "impatient": expected("500ms", "read committed", "off", AS_BEGUN),
    "fails": expected("3500ms", "read committed", "off", AS_BEGUN),
    "read": expected("3500ms", "repeatable read", "on", AS_BEGUN),
}


@pytest.fixture
async def storage(url: str) -> AsyncGenerator[Storage]:
    """A store with one connection, under a role with other settings."""
    async with a_role(url, "word") as role_url:
        role = role_url.partition("//")[2].partition(":")[0]
        async with raw(url) as connection:
            for setting in (
                "search_path = nowhere",
                "statement_timeout = 100",
                "lock_timeout = 1",
                "default_transaction_isolation = 'serializable'",
                "default_transaction_read_only = on",
                "plan_cache_mode = force_custom_plan",
                "enable_hashjoin = off",
            ):
                await connection.execute(f"ALTER ROLE {role} SET {setting}")
        its_url = with_options(role_url, schema="its_own", timeout=7, pool_size=1, wake="poll")
        async with await open_storage(its_url) as opened:
            yield opened


def shown(tx: Tx) -> list[str]:
    return [*tx.execute(text(SHOW)).one()]


def calls_of(database: PostgresDatabase) -> dict[str, Callable[[], Awaitable[list[str]]]]:
    """Return one call of each kind that asks the session for settings."""
    once, anyhow = Direct(SHOW, {}), Direct(SHOW, {})
    anyhow.once = False

    async def alone(statement: Direct) -> list[str]:
        rows = await database.direct(statement, {})
        assert rows is not None
        return [*rows[0].values()]

    async def failing() -> list[str]:
        seen: list[str] = []

        def script(tx: Tx) -> None:
            seen.extend(shown(tx))
            raise NotFound("of the script")

        with pytest.raises(NotFound):
            await database.write(script)
        return seen

    return {
        "once": lambda: alone(once),
        "anyhow": lambda: alone(anyhow),
        "write": lambda: database.write(shown),
        "impatient": lambda: database.write(shown, patient=False),
        "fails": failing,
        "read": lambda: database.read(shown),
    }


async def test_every_call_finds_its_settings_whatever_came_before(storage: Storage) -> None:
    calls = calls_of(database_of(storage))
    for three in product(calls, repeat=3):
        for name in three:
            assert await calls[name]() == EXPECTED[name], three


async def test_statements_between_scripts_find_their_session_as_it_was(storage: Storage) -> None:
    calls = calls_of(database_of(storage))
    await calls["once"]()
    for name in ("write", "read", "impatient"):
        await calls[name]()
        with asked() as seen:
            await calls["once"]()
        assert seen.total() == 1, name


async def test_a_commit_that_fails_leaves_no_doubt_of_the_settings(storage: Storage) -> None:
    database = database_of(storage)
    calls = calls_of(database)

    def refused_at_commit(tx: Tx) -> None:
        for statement in (
            "CREATE TEMP TABLE parent (n int PRIMARY KEY)",
            "CREATE TEMP TABLE child (n int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)",
            "INSERT INTO child VALUES (1)",
        ):
            tx.execute(text(statement))

    for before, after in product((("once",), ("once", "fails"), ("write",)), ("write", "once")):
        for name in before:
            await calls[name]()
        with pytest.raises(StorageError, match="23503"):
            await database.write(refused_at_commit)
        assert await calls[after]() == EXPECTED[after]


async def test_of_idle_sessions_one_that_fits_is_taken(url: str) -> None:
    async with await open_storage(url) as storage:
        database = database_of(storage)
        connections = database._connections
        async with connections.one(0, once=False) as one, connections.one(0, once=False) as other:
            await one.fetch("SELECT 1", [], True)
        for _ in range(3):
            for wanted, once in ((one, True), (other, False)):
                async with connections.one(0, once=once) as found:
                    assert found is wanted
