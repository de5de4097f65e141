"""Statements that go to the driver directly: text, values and rows.

SQLAlchemy takes longer to run a statement than SQLite does. So hot statements are compiled once,
and run on the driver's connection.
"""

import sqlite3
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from operator import itemgetter
from typing import Any, cast

from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import Insert

from forge_jobs.storage.sql.base.transaction import HotStatement, IsEnough, Tx, read_until

_BY_NAME = sqlite.dialect(paramstyle="named")
_BY_PLACE = sqlite.dialect(paramstyle="qmark")
_BLOCK = 25
_row_type: Callable[..., Any] = namedtuple


class Single:
    """A statement that runs once and may answer rows."""

    def __init__(self, statement: HotStatement) -> None:
        compiled = _compiled(statement.core, _BY_NAME)
        binds = {name: compiled.binds[name] for name in compiled.params}
        self.text = str(compiled)
        self._written = {name: bind.value for name, bind in binds.items() if not bind.required}
        self._encoders: dict[str, Callable[[Any], Any]] = {
            name: encoder
            for name, bind in binds.items()
            if (encoder := bind.type.dialect_impl(_BY_NAME).bind_processor(_BY_NAME))
        }
        self.row: Callable[[Any], Any] | None = None

    def values(self, parameters: Mapping[str, object]) -> dict[str, Any]:
        """Return the values as the driver takes them."""
        values = {**self._written, **parameters}
        for name, encoder in self._encoders.items():
            values[name] = encoder(values[name])
        return values

    def name_columns(self, cursor: sqlite3.Cursor) -> None:
        """Learn the names of the columns that the statement answers."""
        names = [each[0] for each in cursor.description]
        # The same as the row type's ``_make``, without a Python frame for each row.
        self.row = partial(tuple.__new__, _row_type("Row", names))


class _Insert:
    """Inserts rows, all of the same columns.

    With every run of an INSERT, SQLite prepares the conditions of its indexes anew. So one run
    takes a block of rows where there are as many.
    """

    def __init__(self, statement: HotStatement, columns: tuple[str, ...]) -> None:
        core = cast(Insert, statement.core)
        single = _compiled(core, _BY_PLACE, list(columns))
        assert single.positiontup is not None
        self.single = str(single)
        row = dict.fromkeys(columns)
        self.block = str(_compiled(core.values([row] * _BLOCK), _BY_PLACE))
        self.values = itemgetter(*single.positiontup)


# Shared by all connections of the process: compiling takes longer than running.
_single = cache(Single)
_insert = cache(_Insert)


def _compiled(core: Executable, dialect: Any, columns: list[str] | None = None) -> SQLCompiler:
    return cast(SQLCompiler, cast(Any, core).compile(dialect=dialect, column_keys=columns))


class SqliteTx(Tx):
    """A transaction on a connection of the store's own."""

    def rows(
        self,
        statement: HotStatement,
        parameters: Mapping[str, object],
        is_enough: IsEnough | None = None,
    ) -> Sequence[Any]:
        single = _single(statement)
        cursor = self.raw.execute(single.text, single.values(parameters))
        if cursor.description is None:
            return ()
        if single.row is None:
            single.name_columns(cursor)
        row: Any = single.row
        if is_enough is None:
            return list(map(row, cursor.fetchall()))
        rows = read_until(cursor.fetchmany, is_enough, row)
        cursor.close()
        return rows

    def put(self, statement: HotStatement, rows: Sequence[Mapping[str, object]]) -> None:
        insert = _insert(statement, tuple(rows[0]))
        values = list(map(insert.values, rows))
        whole = len(values) - len(values) % _BLOCK
        if whole:
            blocks = range(0, whole, _BLOCK)
            found = (list(chain(*values[at : at + _BLOCK])) for at in blocks)
            self.raw.executemany(insert.block, found)
        self.raw.executemany(insert.single, values[whole:])
