"""Many rows in one statement: an array per column, and one plan for any number of rows."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ARRAY, Column, Connection, Table, bindparam, text
from sqlalchemy.dialects import postgresql

_dialect: Any = postgresql.dialect()  # type: ignore[no-untyped-call]


def arrays(columns: Mapping[str, Any]) -> str:
    """Return ``unnest(...)`` of one array parameter per name, of the types given."""
    casts = ", ".join(f"CAST(:{name} AS {_type_name(kind)}[])" for name, kind in columns.items())
    return f"unnest({casts})"


def columns_of(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, list[Any]]:
    """Turn the rows into one list per name."""
    return {name: [row[name] for row in rows] for name in names}


def _type_name(kind: Any) -> str:
    return str(kind.compile(dialect=_dialect)).partition(" COLLATE")[0]


class InsertMany:
    """An INSERT of many rows that leaves out those which break a unique constraint."""

    def __init__(self, table: Table, columns: Sequence[Column[Any]]) -> None:
        self._names = [column.name for column in columns]
        types = {column.name: column.type for column in columns}
        listed = ", ".join(self._names)
        self._statement = text(
            f"INSERT INTO {table.name} ({listed}) SELECT * FROM {arrays(types)}"
            " ON CONFLICT DO NOTHING"
        ).bindparams(
            *(bindparam(name, type_=ARRAY(kind)) for name, kind in types.items()),
        )

    def run(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> int:
        """Insert the rows in their order, and return how many were inserted."""
        return connection.execute(self._statement, columns_of(rows, self._names)).rowcount


def insert_many(table: Table) -> InsertMany:
    """Make the INSERT for all columns that a new row of the table gives."""
    return InsertMany(table, [column for column in table.columns if column.name in _NEW_JOB])


_NEW_JOB = {
    "id",
    "queue",
    "kind",
    "payload",
    "status",
    "cause",
    "priority",
    "run_at",
    "requested_run_at",
    "enqueued_at",
    "token",
    "expires_at",
    "timeout_us",
    "max_attempts",
    "unique_key",
    "has_children",
    "tags",
    "metadata",
    "trace",
    "schedule",
    "fingerprint",
    "keep_result",
    "result_ttl_us",
}
