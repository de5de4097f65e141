"""Every difference between the SQL databases that shared statements meet."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Connection, Table, func, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.dml import Insert

from forge_jobs.clock import Clock
from forge_jobs.errors import InvalidInput, Unavailable
from forge_jobs.storage.sql.tables import signals


class Flavor(Protocol):
    """What one database does its own way."""

    name: str

    def now_us(self, connection: Connection) -> int:
        """The store's own clock."""
        ...

    def identity(self, connection: Connection) -> str:
        """Which database the connection is of; equal to the ``store_id`` of stores on it."""
        ...

    def begin(self, connection: Connection) -> None:
        """Make sure that a caller's connection is inside a transaction, in the database too.

        :raises InvalidInput: the connection commits each statement by itself
        """
        ...

    def insert_ignore(self, table: Table) -> Insert:
        """An INSERT that drops rows which break a unique constraint."""
        ...

    def insert_add(self, table: Table, keys: Sequence[str], column: str) -> Insert:
        """An INSERT that adds ``column`` to the row that is there already."""
        ...

    def contains(self, column: ColumnElement[str], part: str) -> ColumnElement[bool]:
        """Whether ``part`` occurs in the column, letter for letter."""
        ...

    def signal(self, connection: Connection, topics: Sequence[str]) -> list[tuple[str, int]]:
        """Tell other processes, with the commit, that these topics have news. Returns the
        new sequence number of each, empty when others are told by the database itself."""
        ...


def file_identity(path: Path) -> str:
    """Equal for all names of one file, different for a copy.

    :raises Unavailable: there is no such file
    """
    try:
        found = path.stat()
    except OSError:
        raise Unavailable("the database file cannot be opened") from None
    return f"sqlite:{found.st_dev}:{found.st_ino}"


class SqliteFlavor:
    """SQLite: the host's clock, and a table of sequence numbers that others watch."""

    name = "sqlite"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._inserts: dict[str, Insert] = {}
        insert = sqlite.insert(signals)
        self._signal = insert.on_conflict_do_update(
            index_elements=["topic"], set_={"seq": signals.c.seq + 1}
        ).returning(signals.c.seq)

    def now_us(self, connection: Connection) -> int:
        return self._clock.time_us()

    def identity(self, connection: Connection) -> str:
        rows = connection.exec_driver_sql("PRAGMA database_list")
        path = next(row[2] for row in rows if row[1] == "main")
        return file_identity(Path(path)) if path else ""

    def begin(self, connection: Connection) -> None:
        # Python's driver begins at the first write only. A savepoint would come before that and
        # become the transaction itself: its release would commit behind the caller's back.
        driver: Any = connection.connection.driver_connection
        if driver.in_transaction:
            return
        if driver.isolation_level is None:
            # Nobody would ever commit what began here.
            raise InvalidInput(
                "connection", "is in autocommit mode, outside a transaction", "begin one first"
            )
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def insert_ignore(self, table: Table) -> Insert:
        found = self._inserts.get(table.name)
        if found is None:
            found = self._inserts[table.name] = sqlite.insert(table).on_conflict_do_nothing()
        return found

    def insert_add(self, table: Table, keys: Sequence[str], column: str) -> Insert:
        name = f"{table.name}.{column}"
        found = self._inserts.get(name)
        if found is None:
            insert = sqlite.insert(table)
            found = self._inserts[name] = insert.on_conflict_do_update(
                index_elements=list(keys),
                set_={column: table.c[column] + insert.excluded[column]},
            )
        return found

    def contains(self, column: ColumnElement[str], part: str) -> ColumnElement[bool]:
        return func.instr(column, part) > 0

    def signal(self, connection: Connection, topics: Sequence[str]) -> list[tuple[str, int]]:
        return [
            (topic, connection.execute(self._signal, {"topic": topic, "seq": 1}).scalar_one())
            for topic in topics
        ]


def known_signals(connection: Connection) -> list[tuple[str, int]]:
    """Every topic with its sequence number."""
    rows: Any = connection.execute(_ALL_SIGNALS)
    return [(topic, seq) for topic, seq in rows]


_ALL_SIGNALS = select(signals.c.topic, signals.c.seq)
