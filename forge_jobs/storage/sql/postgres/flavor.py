"""The SQL and the settings that differ on Postgres."""

import hashlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any

from sqlalchemy import ColumnElement, Connection, column, func, select, table, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from forge_jobs.clock import Clock
from forge_jobs.errors import Conflict, Locked, NotFound, StorageError
from forge_jobs.model.jobs import Claim
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Demand, Transition
from forge_jobs.storage.sql.base.job_columns import NEW
from forge_jobs.storage.sql.base.job_rows import Ended, Picked, Succeeded
from forge_jobs.storage.sql.base.tables import FINISHED, jobs
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.base.upserts import Upserts
from forge_jobs.storage.sql.jobs.cleanup.overdue import next_of_many
from forge_jobs.storage.sql.postgres.announcing import payloads
from forge_jobs.storage.sql.postgres.driver.borrowed import borrowed, is_of_driver
from forge_jobs.storage.sql.postgres.driver.errors import (
    DRIVER_ERRORS,
    LOCK_TIMEOUT,
    refusal,
    sqlstate_of,
    translate,
)
from forge_jobs.storage.sql.postgres.driver.sessions import LOCK_S
from forge_jobs.storage.sql.postgres.short import claims
from forge_jobs.storage.sql.postgres.short.many import InsertMany
from forge_jobs.storage.sql.postgres.short.renewals import renew_claims
from forge_jobs.storage.sql.postgres.short.schedules import advance_schedules
from forge_jobs.storage.sql.postgres.short.successes import succeed

_NOW = text("SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint")
NOT_SWITCHED_OFF = "current_setting('forge_jobs.notify', true) IS DISTINCT FROM 'off'"
"""A session with this setting off wakes no process with its commits."""

_NOTIFY = text(
    "SELECT pg_notify(:channel, news) FROM unnest(CAST(:news AS text[])) AS news"
    f" WHERE {NOT_SWITCHED_OFF}"
)
_LOCK = text("SELECT pg_advisory_xact_lock(:key)")
_TRY_LOCK = text("SELECT pg_try_advisory_xact_lock(:key)")
_LOCK_SHARED = text("SELECT pg_advisory_xact_lock_shared(:key)")
# Joined, not EXISTS: each rule is one look at the index.
_OVERDUE = text(
    "SELECT rule.place FROM unnest(CAST(:queues AS text[]), CAST(:statuses AS text[]),"
    " CAST(:untils AS bigint[])) WITH ORDINALITY AS rule (queue, status, until, place)"
    " CROSS JOIN LATERAL (SELECT FROM forge_jobs WHERE queue = rule.queue"
    f" AND status = rule.status AND {FINISHED} AND finished_at <= rule.until"
    " ORDER BY finished_at LIMIT 1) AS oldest"
)
_INSERT_JOBS = InsertMany(jobs, [jobs.c[name] for name in NEW])
_INSERT_WITH_HOLDS = InsertMany(jobs, [jobs.c[name] for name in (*NEW, "hold")])
_SET = text(
    "SELECT set_config('search_path', :path, true), set_config('lock_timeout', :patience, true)"
)
# A caller's own limit on waiting for locks stays. Without a limit no statement waits for locks.
_SET_INSIDE = text(
    """
    WITH before AS MATERIALIZED (
        SELECT current_setting('search_path') AS path, current_setting('lock_timeout') AS patience
    )
    SELECT before.path, before.patience, set_config('search_path', :path, true),
        CASE before.patience WHEN '0' THEN set_config('lock_timeout', :patience, true) END
    FROM before
    """
)


def quoted_name(name: str) -> str:
    """Return a name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def channel_of(schema: str) -> str:
    """Return the channel of a store's wake-ups. The channels of a database are its own."""
    return "forge_jobs_" + hashlib.md5(schema.encode(), usedforsecurity=False).hexdigest()


class PostgresFlavor(Upserts):
    """Postgres: the server's clock unless a test sets one, and notifications with callers' commits.

    :param clock: in place of the server's, for tests
    :param wakes: False: callers' transactions wake no process
    """

    name = "postgresql"
    locks_rows = True
    hold_s = 0.2
    # Retention may take long to commit: its transaction holds only rows of ended jobs.
    most_hold_s = 10.0
    driver_errors: tuple[type[Exception], ...] = DRIVER_ERRORS

    def __init__(self, schema: str, clock: Clock | None, *, wakes: bool = True) -> None:
        super().__init__(postgresql.insert)
        self.channel = channel_of(schema)
        self._schema = schema
        self._migrations = table("forge_migrations", column("applied_at"), schema=schema)
        self._clock = clock
        self.wakes = wakes

    def translate(self, error: Exception) -> StorageError:
        if sqlstate_of(error) == LOCK_TIMEOUT:
            return Locked(f"{translate(error)}; try again when it has ended")
        return translate(error)

    def set_time(self) -> int | None:
        """The time that tests have set. None: the server's clock counts."""
        return None if self._clock is None else self._clock.time_us()

    def now_us(self, connection: Connection) -> int:
        if self._clock is not None:
            return self._clock.time_us()
        now: int = connection.execute(_NOW).scalar_one()
        return now

    def identity(self, connection: Connection) -> str:
        # Without the tables the second query would be an error, and end a caller's transaction.
        there = func.to_regclass(f"{quoted_name(self._schema)}.forge_migrations").is_not(None)
        database, is_there = connection.execute(select(func.current_database(), there)).one()
        if not is_there:
            return ""
        # All of this stays the same when the database is restored, or replicated row by row. The
        # microsecond distinguishes stores that have one name on two servers.
        made = connection.execute(select(func.min(self._migrations.c.applied_at))).scalar()
        return f"postgresql:{database}:{self._schema}:{made}"

    def begin(self, connection: Connection) -> None:
        """Do nothing: outside a transaction the database refuses the savepoint."""

    @contextmanager
    def inside(self, connection: Connection) -> Generator[None]:
        # Temporary tables of the caller's come last: otherwise one could stand for a table of ours.
        path = f"{quoted_name(self._schema)}, pg_temp"
        before = connection.execute(_SET_INSIDE, {"path": path, "patience": f"{LOCK_S}s"}).one()
        as_before = {"path": before.path, "patience": before.patience}
        try:
            yield
        except (Conflict, NotFound):
            # The database has no part in these errors, so the settings are restored here. Any other
            # error ends the savepoint or the transaction, and the settings with it.
            connection.execute(_SET, as_before)
            raise
        connection.execute(_SET, as_before)

    def borrow(self, connection: object) -> AbstractAsyncContextManager[AsyncConnection] | None:
        return borrowed(connection) if is_of_driver(connection) else None

    def insert_jobs(self, tx: Tx, rows: Sequence[Mapping[str, object]]) -> int:
        statement = _INSERT_WITH_HOLDS if "hold" in rows[0] else _INSERT_JOBS
        return statement.run(tx.connection, rows)

    def advance_schedules(
        self, connection: Connection, rows: Sequence[Mapping[str, object]]
    ) -> None:
        advance_schedules(connection, rows)

    def claim(self, tx: Tx, queue: str, demand: Demand, lease: PodLease) -> Picked:
        return claims.claim(tx, queue, demand, lease)

    def succeed(self, tx: Tx, items: Sequence[tuple[Claim, Transition]]) -> list[Succeeded]:
        return succeed(tx, items)

    def renew_claims(self, tx: Tx, renewals: Sequence[Mapping[str, object]]) -> set[str]:
        return renew_claims(tx, renewals)

    def lock(self, connection: Connection, name: str, *, shared: bool = False) -> None:
        connection.execute(_LOCK_SHARED if shared else _LOCK, {"key": self.lock_key(name)})

    def try_lock(self, connection: Connection, name: str) -> bool:
        taken: bool = connection.execute(_TRY_LOCK, {"key": self.lock_key(name)}).scalar_one()
        return taken

    def lock_key(self, name: str) -> int:
        """Return the key of the advisory lock of this name."""
        key = hashlib.blake2b(f"forge_jobs:{self._schema}:{name}".encode(), digest_size=8).digest()
        return int.from_bytes(key, "big", signed=True)

    def overdue(self, tx: Tx, rules: Sequence[tuple[str, str, int]]) -> list[int]:
        names, statuses, untils = zip(*rules, strict=True) if rules else ((), (), ())
        values = {"queues": list(names), "statuses": list(statuses), "untils": list(untils)}
        return [place - 1 for place in tx.execute(_OVERDUE, values).scalars()]

    def next_ended(self, tx: Tx, ended: Sequence[Ended], size: int) -> tuple[Sequence[Any], int]:
        return next_of_many(tx, ended, size)

    def refusal(self, error: Exception) -> str | None:
        return refusal(error)

    def place(self, connection: Connection) -> Sequence[str]:
        # Look for the schema first: a role may use a schema that the role may not create.
        quoted = quoted_name(self._schema)
        there = connection.execute(select(func.to_regnamespace(quoted).is_not(None))).scalar()
        return () if there else (f"CREATE SCHEMA {quoted}", f"SET LOCAL search_path = {quoted}")

    def contains(self, column: ColumnElement[str], part: str) -> ColumnElement[bool]:
        return func.strpos(column, part) > 0

    def signal(self, tx: Tx, topics: Sequence[str]) -> list[tuple[str, int]]:
        # After a transaction of the store's own, the announcer wakes the other processes.
        if self.wakes and tx.is_callers:
            tx.execute(_NOTIFY, {"channel": self.channel, "news": payloads(topics)})
        return []
