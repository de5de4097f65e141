"""The report of a database on itself."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import TextClause, text

from forge_jobs.errors import StorageRefused
from forge_jobs.storage.protocols import OpenTransactions, StoreReport
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.migrations.runner import schema_version
from forge_jobs.storage.sql.postgres.database import PostgresDatabase

T = TypeVar("T")

_TABLES = (
    "FROM pg_class AS c WHERE c.relkind = 'r' AND c.relname LIKE 'forge\\_%' AND c.relnamespace ="
    " (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('forge_jobs'))"
)
_SIZE = text(f"SELECT sum(pg_total_relation_size(c.oid)) {_TABLES}")
_DEAD = text(f"SELECT sum(pg_stat_get_dead_tuples(c.oid)) {_TABLES}")
# Only roles that may monitor the server may list the files of the log. Asking first keeps
# refusals out of the server's log.
_MAY_LIST = text("SELECT has_function_privilege('pg_ls_waldir()', 'EXECUTE')")
_WAL = text("SELECT sum(size) FROM pg_ls_waldir()")
# Other roles see that there are replicas too, and no more of them.
_REPLICAS = text("SELECT count(*) FROM pg_stat_replication")
# Neither the database's own workers nor sessions in a transaction without a snapshot or a change.
# These columns of other roles' sessions are visible to every role, the start time only to some.
_OPEN = text(
    "SELECT coalesce(max(clock_timestamp() - xact_start), interval '0') AS oldest,"
    " count(*) FILTER (WHERE xact_start IS NULL) AS hidden"
    " FROM pg_stat_activity"
    " WHERE datname = current_database() AND usesysid IS NOT NULL AND pid <> pg_backend_pid()"
    " AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)"
)


def open_transactions(tx: Tx) -> OpenTransactions:
    """See ``Storage``."""
    found = tx.execute(_OPEN).one()
    return OpenTransactions(oldest=found.oldest, hidden=found.hidden)


async def report(database: PostgresDatabase) -> StoreReport:
    """See ``Storage``."""
    try:
        return await database.read(_whole)
    except StorageRefused:
        # A refusal ends a transaction, so each part is asked for in one of its own.
        return await _in_parts(database)


def _whole(tx: Tx) -> StoreReport:
    return StoreReport(
        size_bytes=_number(tx, _SIZE),
        wal_bytes=_wal(tx),
        dead_rows=_number(tx, _DEAD),
        oldest_transaction=open_transactions(tx).oldest,
        replicas=_number(tx, _REPLICAS),
        schema_version=schema_version(tx),
    )


async def _in_parts(database: PostgresDatabase) -> StoreReport:
    found = await _asked(database, open_transactions)
    return StoreReport(
        size_bytes=await _asked(database, lambda tx: _number(tx, _SIZE)),
        wal_bytes=await _asked(database, _wal),
        dead_rows=await _asked(database, lambda tx: _number(tx, _DEAD)),
        oldest_transaction=found.oldest if found else None,
        replicas=await _asked(database, lambda tx: _number(tx, _REPLICAS)),
        schema_version=await _asked(database, schema_version),
    )


async def _asked(database: PostgresDatabase, script: Callable[[Tx], T]) -> T | None:
    try:
        return await database.read(script)
    except StorageRefused:
        return None


def _number(tx: Tx, statement: TextClause) -> int | None:
    found = tx.execute(statement).scalar_one()
    return None if found is None else int(found)


def _wal(tx: Tx) -> int | None:
    return _number(tx, _WAL) if tx.execute(_MAY_LIST).scalar_one() else None
