"""INSERTs with ON CONFLICT, spelled alike by both databases."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Row, Table, bindparam, update
from sqlalchemy.sql.dml import Insert, ReturningInsert

from forge_jobs.storage.sql.base.tables import counters
from forge_jobs.storage.sql.base.transaction import COUNTER_KEY, HotStatement, Tx

_DialectInsert = Callable[[Table], Any]


class Upserts:
    """The part of a flavor that every dialect with ON CONFLICT has. Each statement is made once.

    :param insert: the dialect's own
    """

    def __init__(self, insert: _DialectInsert) -> None:
        self._insert = insert
        self.add_counts = self.insert_add(counters, COUNTER_KEY, "count")

    def insert_ignore(self, table: Table) -> Insert:
        """See ``Flavor.insert_ignore``."""
        return _ignore(self._insert, table)

    def insert_held(self, table: Table, keys: Sequence[str]) -> ReturningInsert[Any]:
        """See ``Flavor.insert_held``."""
        return _held(self._insert, table, tuple(keys))

    def insert_add(self, table: Table, keys: Sequence[str], column: str) -> HotStatement:
        """See ``Flavor.insert_add``."""
        return _add(self._insert, table, tuple(keys), column)

    def insert_replace(self, table: Table, keys: Sequence[str]) -> HotStatement:
        """See ``Flavor.insert_replace``."""
        return _replace(self._insert, table, tuple(keys))


@cache
def _ignore(dialect_insert: _DialectInsert, table: Table) -> Insert:
    ignoring: Insert = dialect_insert(table).on_conflict_do_nothing()
    return ignoring


@cache
def _held(
    dialect_insert: _DialectInsert, table: Table, keys: tuple[str, ...]
) -> ReturningInsert[Any]:
    # What is written is what was there.
    same = next(each for each in table.columns if each.name not in keys)
    held = dialect_insert(table).on_conflict_do_update(
        index_elements=list(keys), set_={same.name: same}
    )
    returning: ReturningInsert[Any] = held.returning(*table.columns)
    return returning


@cache
def _add(
    dialect_insert: _DialectInsert, table: Table, keys: tuple[str, ...], column: str
) -> HotStatement:
    insert = dialect_insert(table)
    added = {column: table.c[column] + insert.excluded[column]}
    return HotStatement(insert.on_conflict_do_update(index_elements=list(keys), set_=added))


@cache
def _replace(dialect_insert: _DialectInsert, table: Table, keys: tuple[str, ...]) -> HotStatement:
    insert = dialect_insert(table)
    given = {each.name: each for each in insert.excluded if each.name not in keys}
    return HotStatement(insert.on_conflict_do_update(index_elements=list(keys), set_=given))


class Records:
    """Rows that a script reads, adds to and writes, however many in two calls of the database.

    :param keys: the primary key
    :param columns: what is written
    """

    def __init__(self, table: Table, keys: Sequence[str], columns: Sequence[str]) -> None:
        self._table = table
        self._keys = tuple(keys)
        is_one = (table.c[key] == bindparam(f"of_{key}") for key in keys)
        new: dict[str, Any] = {name: bindparam(f"new_{name}") for name in columns}
        self._put = update(table).where(*is_one).values(new)

    def held(self, tx: Tx, rows: Sequence[Mapping[str, Any]]) -> list[Row[Any]]:
        """Lock the rows in the given order, make those that are missing, and return all.

        :param rows: what a missing row is made of, each of another key
        """
        if not rows:
            return []
        return [*tx.execute(tx.flavor.insert_held(self._table, self._keys), rows)]

    def put(self, tx: Tx, changed: Iterable[tuple[Row[Any], Mapping[str, Any]]]) -> None:
        """Write columns of rows that are held."""
        given = [
            {f"of_{key}": getattr(row, key) for key in self._keys}
            | {f"new_{name}": value for name, value in values.items()}
            for row, values in changed
        ]
        if given:
            tx.execute(self._put, given)
