"""INSERTs with ON CONFLICT, spelled alike by both databases."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Table
from sqlalchemy.sql.dml import Insert

from forge_jobs.storage.sql.base.tables import counters
from forge_jobs.storage.sql.base.transaction import COUNTER_KEY, HotStatement

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
