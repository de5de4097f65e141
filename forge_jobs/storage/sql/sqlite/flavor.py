"""The SQL and the clock that differ on SQLite."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError

from forge_jobs.clock import Clock
from forge_jobs.errors import InvalidInput, StorageError, Unavailable
from forge_jobs.model.jobs import Claim
from forge_jobs.model.transitions import Transition
from forge_jobs.storage.sql.base.job_rows import Succeeded
from forge_jobs.storage.sql.base.tables import FINISHED, jobs, schedules, signals
from forge_jobs.storage.sql.base.transaction import HotStatement, Tx
from forge_jobs.storage.sql.base.upserts import Upserts
from forge_jobs.storage.sql.hot.finalize import SUCCEED
from forge_jobs.storage.sql.hot.heartbeat import RENEW, RENEW_RUNNING
from forge_jobs.storage.sql.jobs import claim
from forge_jobs.storage.sql.jobs.cleanup.overdue import next_ended
from forge_jobs.storage.sql.sqlite.driver_errors import TRANSLATED, translate


def file_identity(path: Path) -> str:
    """Return a name that is equal for all names of one file, different for a copy.

    :raises Unavailable: there is no such file
    """
    try:
        found = path.stat()
    except OSError:
        raise Unavailable(
            f"the database file {path.name} cannot be opened; was it moved or removed?"
        ) from None
    return f"sqlite:{found.st_dev}:{found.st_ino}"


_OVERDUE = text(
    "SELECT rule.key FROM json_each(:rules) AS rule WHERE EXISTS (SELECT 1 FROM forge_jobs"
    " WHERE queue = json_extract(rule.value, '$[0]') AND status = json_extract(rule.value, '$[1]')"
    f" AND {FINISHED} AND finished_at <= json_extract(rule.value, '$[2]'))"
)
INSERT_JOBS = HotStatement(insert(jobs))
_ADVANCE = update(schedules).where(schedules.c.name == bindparam("of"))
_RENEW, _RENEW_RUNNING = text(RENEW), text(RENEW_RUNNING)
_SUCCEED = HotStatement.of(SUCCEED)
_SIGNAL = HotStatement(
    sqlite.insert(signals)
    .on_conflict_do_update(index_elements=["topic"], set_={"seq": signals.c.seq + 1})
    .returning(signals.c.seq)
)


class SqliteFlavor(Upserts):
    """SQLite: the host's clock, and a table of sequence numbers that other processes watch."""

    name = "sqlite"
    locks_rows = False
    hold_s = 0.03
    most_hold_s = 0.05
    driver_errors: tuple[type[Exception], ...] = TRANSLATED
    claim = staticmethod(claim.claim)
    next_ended = staticmethod(next_ended)

    def __init__(self, clock: Clock) -> None:
        super().__init__(sqlite.insert)
        self._clock = clock

    def translate(self, error: Exception) -> StorageError:
        return translate(error)

    def now_us(self, connection: Connection) -> int:
        return self._clock.time_us()

    def identity(self, connection: Connection) -> str:
        rows = connection.exec_driver_sql("PRAGMA database_list")
        path = next(row[2] for row in rows if row[1] == "main")
        return file_identity(Path(path)) if path else ""

    def begin(self, connection: Connection) -> None:
        # Python's driver begins a transaction at the first write only. A savepoint before that
        # would become the transaction itself: releasing the savepoint would commit behind the
        # caller's back.
        driver: Any = connection.connection.driver_connection
        if driver.in_transaction:
            return
        if driver.isolation_level is None:
            # A transaction begun here would never be committed.
            raise InvalidInput(
                "connection", "is in autocommit mode, outside a transaction", "begin one first"
            )
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def inside(self, connection: Connection) -> AbstractContextManager[None]:
        return nullcontext()

    def borrow(self, connection: object) -> None:
        return None

    def insert_jobs(self, tx: Tx, rows: Sequence[Mapping[str, object]]) -> int:
        # No other transaction can have been faster: this one holds the write lock.
        tx.put(INSERT_JOBS, rows)
        return len(rows)

    def advance_schedules(
        self, connection: Connection, rows: Sequence[Mapping[str, object]]
    ) -> None:
        named = [{"of" if name == "name" else name: row[name] for name in row} for row in rows]
        connection.execute(_ADVANCE, named)

    def succeed(self, tx: Tx, items: Sequence[tuple[Claim, Transition]]) -> Sequence[Succeeded]:
        if not items:
            return ()
        # All of a batch in one statement, which is sent as one JSON text.
        listed = msgspec.json.encode(
            [(claim.job_id, claim.queue, claim.token, end.result) for claim, end in items]
        )
        values = {"items": listed.decode(), "owner": items[0][0].host_id, "now": tx.now}
        return tx.rows(_SUCCEED, values)

    def renew_claims(self, tx: Tx, renewals: Sequence[Mapping[str, object]]) -> set[str]:
        running = [{**one, "now": tx.now} for one in renewals if one["worker"]]
        ahead = [{**one, "now": tx.now} for one in renewals if not one["worker"]]
        if running:
            tx.execute(_RENEW_RUNNING, running)
        if ahead:
            tx.execute(_RENEW, ahead)
        return {str(one["job"]) for one in renewals}

    def lock(self, connection: Connection, name: str, *, shared: bool = False) -> None:
        """Do nothing: the write lock keeps all other writers out already."""

    def try_lock(self, connection: Connection, name: str) -> bool:
        """Return True: this transaction holds the write lock already."""
        return True

    def overdue(self, tx: Tx, rules: Sequence[tuple[str, str, int]]) -> list[int]:
        found: list[int] = list(tx.execute(_OVERDUE, {"rules": json.dumps(rules)}).scalars())
        return found

    def refusal(self, error: Exception) -> str | None:
        cause = error.orig if isinstance(error, DBAPIError) else error
        return str(cause) if isinstance(cause, sqlite3.IntegrityError) else None

    def place(self, connection: Connection) -> Sequence[str]:
        return ()

    def contains(self, column: ColumnElement[str], part: str) -> ColumnElement[bool]:
        return func.instr(column, part) > 0

    def signal(self, tx: Tx, topics: Sequence[str]) -> list[tuple[str, int]]:
        return [(topic, tx.rows(_SIGNAL, {"topic": topic, "seq": 1})[0].seq) for topic in topics]


def known_signals(connection: Connection) -> list[tuple[str, int]]:
    """Return every topic with its sequence number."""
    rows: Any = connection.execute(_ALL_SIGNALS)
    return [(topic, seq) for topic, seq in rows]


_ALL_SIGNALS = select(signals.c.topic, signals.c.seq)
