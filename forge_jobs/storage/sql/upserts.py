"""INSERTs that give way to rows which are there already; both databases spell them alike."""

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Table
from sqlalchemy.sql.dml import Insert


class Upserts:
    """The part of a flavor that every dialect with ON CONFLICT has; each statement is made once.

    :param insert: the dialect's own
    """

    def __init__(self, insert: Callable[[Table], Any]) -> None:
        self._insert = insert
        self._inserts: dict[str, Insert] = {}

    def insert_ignore(self, table: Table) -> Insert:
        """See ``Flavor.insert_ignore``."""
        found = self._inserts.get(table.name)
        if found is None:
            found = self._inserts[table.name] = self._insert(table).on_conflict_do_nothing()
        return found

    def insert_add(self, table: Table, keys: Sequence[str], column: str) -> Insert:
        """See ``Flavor.insert_add``."""
        name = f"{table.name}.{column}"
        found = self._inserts.get(name)
        if found is None:
            insert = self._insert(table)
            found = self._inserts[name] = insert.on_conflict_do_update(
                index_elements=list(keys),
                set_={column: table.c[column] + insert.excluded[column]},
            )
        return found
