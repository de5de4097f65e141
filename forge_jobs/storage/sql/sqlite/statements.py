"""Statements that go to the driver directly: text, values and rows.

SQLAlchemy takes longer to run a statement than SQLite does. So hot statements are compiled once,
and run on the driver's connection.
"""

import sqlite3
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache, partial
from itertools import chain
from operator import itemgetter
from typing import Any, cast

from sqlalchemy import Connection
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import Insert

from forge_jobs.storage.sql.base.transaction import Flavor, HotStatement, IsEnough, Tx, read_until

_BY_NAME = sqlite.dialect(paramstyle="named")
_BY_PLACE = sqlite.dialect(paramstyle="qmark")
_BLOCK = 25
_row_type: Callable[..., Any] = namedtuple


class Statements:
    """The statements of one connection."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self.raw = raw

    def rows(
        self,
        statement: HotStatement,
        parameters: Mapping[str, object],
        is_enough: IsEnough | None = None,
    ) -> Sequence[Any]:
        """See ``Tx.rows``."""
        return _single(statement).run(self.raw, parameters, is_enough)

    def put(self, statement: HotStatement, rows: Sequence[Mapping[str, object]]) -> None:
        """See ``Tx.put``."""
        _insert(statement, tuple(rows[0])).run(self.raw, rows)


class Single:
    """A statement that runs once and may answer rows."""

    def __init__(self, core: Executable) -> None:
        compiled = _compiled(core, _BY_NAME)
        binds = {name: compiled.binds[name] for name in compiled.params}
        self.text = str(compiled)
        self._written = {name: bind.value for name, bind in binds.items() if not bind.required}
        self._encoders: dict[str, Callable[[Any], Any]] = {
            name: encoder
            for name, bind in binds.items()
            if (encoder := bind.type.dialect_impl(_BY_NAME).bind_processor(_BY_NAME))
        }
        self._row: Callable[[Any], Any] | None = None

    def run(
        self,
        raw: sqlite3.Connection,
        parameters: Mapping[str, object],
        is_enough: IsEnough | None = None,
    ) -> Sequence[Any]:
        values = {**self._written, **parameters}
        for name, encoder in self._encoders.items():
            values[name] = encoder(values[name])
        cursor = raw.execute(self.text, values)
        if cursor.description is None:
            return ()
        if self._row is None:
            names = [each[0] for each in cursor.description]
            # The same as the row type's ``_make``, without a Python frame for each row.
            self._row = partial(tuple.__new__, _row_type("Row", names))
        row = self._row
        if is_enough is None:
            return list(map(row, cursor.fetchall()))
        rows = read_until(lambda count: list(map(row, cursor.fetchmany(count))), is_enough)
        cursor.close()
        return rows


class _Insert:
    """Inserts rows, all of the same columns.

    With every run of an INSERT, SQLite prepares the conditions of its indexes anew. So one run
    takes a block of rows where there are as many.
    """

    def __init__(self, core: Insert, columns: tuple[str, ...]) -> None:
        single = _compiled(core, _BY_PLACE, list(columns))
        assert single.positiontup is not None
        self._single = str(single)
        row = dict.fromkeys(columns)
        self._block = str(_compiled(core.values([row] * _BLOCK), _BY_PLACE))
        self._values = itemgetter(*single.positiontup)

    def run(self, raw: sqlite3.Connection, rows: Sequence[Mapping[str, object]]) -> None:
        values = list(map(self._values, rows))
        whole = len(values) - len(values) % _BLOCK
        if whole:
            blocks = range(0, whole, _BLOCK)
            raw.executemany(self._block, (list(chain(*values[at : at + _BLOCK])) for at in blocks))
        raw.executemany(self._single, values[whole:])


@cache
def _single(statement: HotStatement) -> Single:
    """Return the compiled statement, shared by all connections of the process: compiling takes
    longer than running."""
    return Single(statement.core)


@cache
def _insert(statement: HotStatement, columns: tuple[str, ...]) -> _Insert:
    return _Insert(cast(Insert, statement.core), columns)


def _compiled(core: Executable, dialect: Any, columns: list[str] | None = None) -> SQLCompiler:
    return cast(SQLCompiler, cast(Any, core).compile(dialect=dialect, column_keys=columns))


class OwnTx(Tx):
    """A transaction on a connection of the store's own."""

    def __init__(
        self,
        connection: Connection,
        statements: Statements,
        flavor: Flavor,
        part: str,
        known_queues: AbstractSet[str] = frozenset(),
    ) -> None:
        super().__init__(connection, flavor, part, known_queues)
        self._statements = statements

    def rows(
        self,
        statement: HotStatement,
        parameters: Mapping[str, object],
        is_enough: IsEnough | None = None,
    ) -> Sequence[Any]:
        return self._statements.rows(statement, parameters, is_enough)

    def put(self, statement: HotStatement, rows: Sequence[Mapping[str, object]]) -> None:
        self._statements.put(statement, rows)
