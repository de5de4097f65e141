"""A PostgreSQL database for one test, seen from the inside."""

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import asyncpg
import pytest
from sqlalchemy import text

from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.postgres.database import PostgresDatabase
from forge_jobs.storage.sql.postgres.driver.connections import PostgresConnection
from tests.support.waiting import wait_until

R = TypeVar("R")

# Given to the server with every connection, so that a test can tell the store's from others.
STORE = "a store under test"


def with_options(url: str, **options: object) -> str:
    """The URL with these options as well."""
    added = "&".join(f"{name}={value}" for name, value in options.items())
    return f"{url}{'&' if '?' in url else '?'}{added}"


def as_user(url: str, user: str, password: str) -> str:
    """The URL for another role."""
    parts = urlsplit(url)
    return parts._replace(netloc=f"{user}:{password}@{parts.hostname}:{parts.port}").geturl()


def database_of(storage: Storage) -> PostgresDatabase:
    """Return the database that runs the storage's scripts."""
    database = storage.jobs._database  # type: ignore[attr-defined]
    assert isinstance(database, PostgresDatabase)
    return database


class Touched(NamedTuple):
    """Rows and blocks of a table that a transaction has read.

    :param scanned: rows of the whole table
    :param fetched: rows found by an index
    :param walked: entries of indexes, including entries of dead rows
    :param blocks: blocks of indexes
    """

    scanned: int
    fetched: int
    walked: int
    blocks: int


_TOUCHED = (
    "SELECT coalesce(seq_tup_read, 0) AS scanned, coalesce(idx_tup_fetch, 0) AS fetched,"
    " (SELECT CAST(sum(pg_stat_get_xact_tuples_returned(indexrelid)) AS bigint)"
    "  FROM pg_index WHERE indrelid = relid) AS walked,"
    " (SELECT CAST(sum(pg_stat_get_xact_blocks_fetched(indexrelid)) AS bigint)"
    "  FROM pg_index WHERE indrelid = relid) AS blocks"
    " FROM pg_stat_xact_user_tables WHERE relname = '{table}'"
)


@asynccontextmanager
async def touched(storage: Storage, table: str = "forge_jobs") -> AsyncGenerator[list[Touched]]:
    """Yield what each transaction inside has touched. A lone statement is a transaction."""
    asked = _TOUCHED.format(table=table)
    database: Any = database_of(storage)
    found: list[Touched] = []
    call: Callable[..., Awaitable[Any]] = database._call
    fetch = PostgresConnection.fetch

    def so_far(tx: Tx) -> Touched:
        return Touched(*tx.execute(text(asked)).one())

    async def watched(script: Callable[[Tx], Any], begin: str) -> Any:
        def both(tx: Tx) -> Any:
            # The view adds up what the session has not reported yet.
            before = so_far(tx)
            result = script(tx)
            pairs = zip(so_far(tx), before, strict=True)
            found.append(Touched(*(after - earlier for after, earlier in pairs)))
            return result

        return await call(both, begin)

    async def watched_alone(self: Any, statement: str, arguments: Sequence[Any], once: bool) -> Any:
        async with self._driver.transaction():
            before = await self._driver.fetchrow(asked)
            rows = await fetch(self, statement, arguments, once)
            pairs = zip(await self._driver.fetchrow(asked), before, strict=True)
            found.append(Touched(*(after - earlier for after, earlier in pairs)))
        return rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_call", watched)
        patch.setattr(PostgresConnection, "fetch", watched_alone)
        yield found


@asynccontextmanager
async def raw(url: str, **options: Any) -> AsyncGenerator[Any]:
    """A connection of the driver's own."""
    connection: Any = await asyncpg.connect(url, **options)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def a_role(url: str, password: str) -> AsyncGenerator[str]:
    """Yield the URL of an ordinary role that may create schemas in the database."""
    name = f"role_{secrets.token_hex(6)}"
    database = urlsplit(url).path[1:]
    async with raw(url) as connection:
        await connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
        await connection.execute(f"GRANT CREATE ON DATABASE {database} TO {name}")
    try:
        yield as_user(url, name, password)
    finally:
        async with raw(url) as connection:
            await connection.execute(f"DROP OWNED BY {name} CASCADE")
            await connection.execute(f"DROP ROLE {name}")


async def terminate_others(url: str) -> int:
    """End every other session of the database, and return how many there were."""
    async with raw(url) as connection:
        ended: int = await connection.fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    return ended


async def deadlocks(url: str) -> int:
    """Return how many deadlocks the database has met.

    Every store of the database must be closed, because a session reports its counts when it ends.
    """
    others = (
        "SELECT count(*) = 0 FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'"
    )
    async with raw(url.partition("?")[0]) as connection:
        await wait_until(lambda: connection.fetchval(others), description="the sessions have ended")
        count: int = await connection.fetchval(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
    return count


def sleeping(seconds: float, then: Callable[[Tx], R]) -> Callable[[Tx], R]:
    """Return a script that stays in the server for a while before ``then``."""

    def script(tx: Tx) -> R:
        tx.execute(text(f"SELECT pg_sleep({seconds})"))
        return then(tx)

    return script
