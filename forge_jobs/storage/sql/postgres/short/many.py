"""Many rows in one statement: an array per column, and one plan for any number of rows."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ARRAY, Column, Connection, Table, bindparam, text

from forge_jobs.storage.sql.hot.parts import type_name


def arrays(columns: Mapping[str, Any]) -> str:
    """Return ``unnest(...)`` of one array parameter per name, of the types given."""
    casts = ", ".join(f"CAST(:{name} AS {type_name(kind)}[])" for name, kind in columns.items())
    return f"unnest({casts})"


def columns_of(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, list[Any]]:
    """Turn the rows into one list per name."""
    return {name: [row[name] for row in rows] for name in names}


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
