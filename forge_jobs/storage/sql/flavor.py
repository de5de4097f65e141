"""Every difference between the SQL databases that shared statements meet."""

from collections.abc import Sequence
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Connection, Table, func, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.dml import Insert

from forge_jobs.clock import Clock
from forge_jobs.storage.sql.tables import signals


class Flavor(Protocol):
    """What one database does its own way."""

    name: str

    def now_us(self, connection: Connection) -> int:
        """The store's own clock."""
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


class SqliteFlavor:
    """SQLite: the host's clock, and a table of sequence numbers that others watch."""

    name = "sqlite"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        insert = sqlite.insert(signals)
        self._signal = insert.on_conflict_do_update(
            index_elements=["topic"], set_={"seq": signals.c.seq + 1}
        ).returning(signals.c.seq)

    def now_us(self, connection: Connection) -> int:
        return self._clock.time_us()

    def insert_ignore(self, table: Table) -> Insert:
        return sqlite.insert(table).on_conflict_do_nothing()

    def insert_add(self, table: Table, keys: Sequence[str], column: str) -> Insert:
        insert = sqlite.insert(table)
        return insert.on_conflict_do_update(
            index_elements=list(keys),
            set_={column: table.c[column] + insert.excluded[column]},
        )

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
