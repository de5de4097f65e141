"""Brings the schema of a database up to date while other programs use the database.

A request for a table's exclusive lock waits for all that use the table, and all later users wait
for that request. So each such wait is short, with a pause afterwards in which the others go on.
Indexes are built concurrently, which waits too, but delays no other program.

One program migrates at a time. A transaction on a separate connection holds the advisory lock and
does nothing else, so that the lock works behind a pooler too. Other programs ask for the lock again
and again, because a wait in the server would keep a snapshot, and the build of an index waits for
all snapshots there are.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
from sqlalchemy import text

from forge_jobs import stop_points
from forge_jobs.clock import SystemClock
from forge_jobs.errors import Unavailable
from forge_jobs.outages import Pauses
from forge_jobs.reports import reporter
from forge_jobs.storage.backend import MigrationStatus
from forge_jobs.storage.sql.base.database import Script
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.migrations import runner
from forge_jobs.storage.sql.migrations.files import ConcurrentIndex, Migration
from forge_jobs.storage.sql.postgres.database import PostgresDatabase
from forge_jobs.storage.sql.postgres.driver.connecting import PostgresOptions, connect
from forge_jobs.storage.sql.postgres.driver.errors import (
    DRIVER_ERRORS,
    LOCK_TIMEOUT,
    sqlstate_of,
    translate,
)

logger = reporter(__name__)

R = TypeVar("R")

PATIENCE_S = 60.0
"""How long one transaction is tried, pauses included."""

_LOCK_MS = 100
"""How long others may have to wait behind one of our waits, in milliseconds."""

_LOOK_EVERY_S = 0.2
_PAUSES = Pauses(_LOOK_EVERY_S, 2.0)
LOG_AFTER_S = 5.0
"""How often the log names what the migration waits for."""

_DEADLOCK = "40P01"
_TABLES = text(
    "SELECT relname FROM pg_class WHERE relkind = 'r'"
    " AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = :schema)"
)
# The oldest transactions first. The role's rights decide whose age is visible.
_AT_WORK = """
SELECT a.pid, a.application_name AS name, coalesce(a.state, a.backend_type, '') AS state,
    extract(epoch FROM clock_timestamp() - a.xact_start)::bigint AS seconds
FROM pg_stat_activity a WHERE a.pid IN ({}) ORDER BY a.xact_start, a.pid LIMIT 3
"""
_USERS = _AT_WORK.format(
    "SELECT l.pid FROM pg_locks l JOIN pg_class c ON l.relation = c.oid"
    " JOIN pg_namespace n ON c.relnamespace = n.oid WHERE l.granted"
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND n.nspname = $1 AND c.relname = ANY ($2::text[])"
)
_LOCKED_BY = _AT_WORK.format(
    "SELECT pid FROM pg_locks WHERE granted AND locktype = 'advisory' AND objsubid = 1"
    " AND (classid::bigint << 32 | objid::bigint) = $1"
)
_WAITED_FOR = _AT_WORK.format("SELECT unnest(pg_blocking_pids($1))")
_IS_VALID = (
    "SELECT i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
    " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2"
)
# A build keeps this lock, and an automatic vacuum has the same.
_IS_BUILT = (
    "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_class c ON l.relation = c.oid"
    " JOIN pg_namespace n ON c.relnamespace = n.oid WHERE n.nspname = $1 AND c.relname = $2"
    " AND l.granted AND l.mode = 'ShareUpdateExclusiveLock'"
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = l.pid"
    "   AND a.backend_type = 'autovacuum worker'))"
)
_elapsed = SystemClock().elapsed


class _LockedOut(Exception):
    """Other sessions use what must be locked."""


async def bring_up(database: PostgresDatabase) -> list[MigrationStatus]:
    """See ``Migrator.up``."""
    made = await database.write(runner.up_if_empty)
    if made is not None:
        return made
    async with _alone(database) as lock, _connected(database.options) as builder:
        missing = await database.read(runner.find_missing)
        for migration in missing:
            for piece in migration.pieces[:-1]:
                # A program that has lost the lock must not go on beside the next one.
                await lock.execute("SELECT 1")
                if isinstance(piece, ConcurrentIndex):
                    await _build(database.options, builder, piece)
                else:
                    await _run(database, piece)
            await lock.execute("SELECT 1")
            await _run(database, migration.pieces[-1], migration)
        return await database.read(lambda tx: runner.applied(tx, missing))


async def change(database: PostgresDatabase, script: Script[R]) -> R:
    """Run a script that changes the schema, without delaying others for long."""

    def impatient(tx: Tx) -> R:
        _limit_waits(tx)
        return script(tx)

    return await _in_turn(database, impatient, [])


# -- transactions ------------------------------------------------------------------------------


async def _run(
    database: PostgresDatabase,
    statements: ConcurrentIndex | Sequence[str],
    migration: Migration | None = None,
) -> None:
    """Run the statements in one transaction, which records ``migration`` as applied when given."""
    assert not isinstance(statements, ConcurrentIndex)
    schema = database.options.schema
    words = {word for each in statements for word in re.findall(r"\w+", each)}
    tables: list[str] = []

    def script(tx: Tx) -> None:
        tables[:] = sorted(words.intersection(tx.execute(_TABLES, {"schema": schema}).scalars()))
        for table in tables:
            # Cancels an automatic vacuum, for which the short wait would be too short, and keeps
            # the next one out. Reads and writes go on beside this lock.
            tx.connection.exec_driver_sql(f"LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE")
        _limit_waits(tx)
        runner.run(tx, statements)
        if migration is not None:
            runner.record(tx, migration)

    await _in_turn(database, script, tables)


def _limit_waits(tx: Tx) -> None:
    tx.connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_LOCK_MS}")


async def _in_turn(database: PostgresDatabase, script: Script[R], tables: Sequence[str]) -> R:
    """Run the script between other transactions, with pauses in which those go on.

    :param tables: the tables that the script locks, known once it has run
    :raises Unavailable: another transaction held a lock at every attempt
    """

    def guarded(tx: Tx) -> R:
        try:
            return script(tx)
        except DRIVER_ERRORS as error:
            if sqlstate_of(error) in (LOCK_TIMEOUT, _DEADLOCK):
                raise _LockedOut from None
            raise

    deadline = _elapsed() + PATIENCE_S
    failures = 0
    while True:
        try:
            return await database.write(guarded)
        except _LockedOut:
            if _elapsed() >= deadline:
                users = await _ask(database.options, _USERS, database.options.schema, tables)
                raise Unavailable(
                    f"the schema cannot be changed while others use {' and '.join(tables)}: "
                    f"{users or 'no session is left now'}. This step was undone; end what is in "
                    "the way, and run the command again"
                ) from None
        failures += 1
        await anyio.sleep(_PAUSES.after(failures))


# -- indexes -----------------------------------------------------------------------------------


async def _build(options: PostgresOptions, builder: Any, index: ConcurrentIndex) -> None:
    """Build the index, unless it is there. A half-built index of a killed build is built again."""
    place = f"{options.quoted_schema}."

    async def is_valid() -> bool | None:
        found: bool | None = await builder.fetchval(_IS_VALID, options.schema, index.name)
        return found

    if await is_valid() is False:
        await _until_no_other_build(options, builder, index)
        if await is_valid() is False:
            drop = f"DROP INDEX CONCURRENTLY IF EXISTS {place}{index.name}"
            await _watched(options, builder, index, drop)
    if not await is_valid():
        await _watched(options, builder, index, index.statement(place))
    stop_points.reach_now("migrate:step")


async def _until_no_other_build(
    options: PostgresOptions, builder: Any, index: ConcurrentIndex
) -> None:
    """Wait for a build that goes on in the server although its program has ended.

    The wait is no lock request: a build waits for every waiting snapshot.
    """
    logged_at = _elapsed()
    while await builder.fetchval(_IS_BUILT, options.schema, index.table):
        if _elapsed() >= logged_at + LOG_AFTER_S:
            logged_at = _elapsed()
            users = await _ask(options, _USERS, options.schema, [index.table])
            logger.warning(
                "index %s may still be built by a program that was ended; waiting for it: %s",
                index.name,
                users,
            )
        await anyio.sleep(_LOOK_EVERY_S)


async def _watched(
    options: PostgresOptions, builder: Any, index: ConcurrentIndex, statement: str
) -> None:
    """Run the statement, and log what the statement waits for."""
    running = asyncio.ensure_future(builder.execute(statement))
    try:
        while True:
            await asyncio.wait({running}, timeout=LOG_AFTER_S)
            if running.done():
                await running
                return
            if others := await _ask(options, _WAITED_FOR, builder.get_server_pid()):
                logger.warning(
                    "the build of index %s waits for transactions that began before it: %s. It "
                    "goes on when they have ended; meanwhile all work goes on",
                    index.name,
                    others,
                )
    except DRIVER_ERRORS as error:
        raise translate(error, options.server) from None
    finally:
        running.cancel()


# -- connections -------------------------------------------------------------------------------


@asynccontextmanager
async def _alone(database: PostgresDatabase) -> AsyncGenerator[Any]:
    """Take the lock of the only program that migrates. Yields the connection with the lock."""
    options, key = database.options, database.flavor.lock_key("schema")
    async with _connected(options) as connection:
        await connection.execute("BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0")
        begun = logged_at = _elapsed()
        while not await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", key):
            if (now := _elapsed()) >= logged_at + LOG_AFTER_S:
                logged_at = now
                holder = await _ask(options, _LOCKED_BY, key)
                if now >= begun + options.timeout:
                    raise Unavailable(f"another program migrates all the time: {holder}; end it")
                logger.warning("another program migrates the schema; waiting for it: %s", holder)
            await anyio.sleep(_LOOK_EVERY_S)
        yield connection


@asynccontextmanager
async def _connected(options: PostgresOptions) -> AsyncGenerator[Any]:
    """Yield a connection of the driver's own, past the pooler when the URL says how."""
    connection: Any = None
    try:
        connection = await connect(options, direct=True)
        if not options.pooled or options.direct:
            # Waits on this connection delay no other session.
            await connection.execute("SET lock_timeout = 0")
        yield connection
    except DRIVER_ERRORS as error:
        raise translate(error, options.server) from None
    finally:
        if connection is not None:
            connection.terminate()


async def _ask(options: PostgresOptions, query: str, *arguments: object) -> str:
    """Return sessions as people find them, on a separate connection that keeps no snapshot."""
    async with _connected(options) as connection:
        rows = await connection.fetch(query, *arguments)
    return _in_words((row["pid"], row["name"], row["state"], row["seconds"]) for row in rows)


def _in_words(sessions: Iterable[tuple[int, str, str, int | None]]) -> str:
    return ", ".join(
        f"pid {pid} ({name or 'no application_name'}"
        + (f", {state}" if state else "")
        + (f", its transaction {seconds} s old)" if seconds is not None else ")")
        for pid, name, state, seconds in sessions
    )
