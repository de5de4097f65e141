"""INSERTs that give way to rows which are there already; both databases spell them alike."""

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Table
from sqlalchemy.sql.dml import Insert

from forge_jobs.storage.sql.transaction import Often


class Upserts:
    """The part of a flavor that every dialect with ON CONFLICT has; each statement is made once.

    :param insert: the dialect's own
    """

    def __init__(self, insert: Callable[[Table], Any]) -> None:
        self._insert = insert
        self._inserts: dict[str, Insert] = {}
        self._adds: dict[str, Often] = {}

    def insert_ignore(self, table: Table) -> Insert:
        """See ``Flavor.insert_ignore``."""
        found = self._inserts.get(table.name)
        if found is None:
            found = self._inserts[table.name] = self._insert(table).on_conflict_do_nothing()
        return found

    def insert_add(self, table: Table, keys: Sequence[str], column: str) -> Often:
        """See ``Flavor.insert_add``."""
        name = f"{table.name}.{column}"
        found = self._adds.get(name)
        if found is None:
            insert = self._insert(table)
            added = {column: table.c[column] + insert.excluded[column]}
            found = self._adds[name] = Often(
                insert.on_conflict_do_update(index_elements=list(keys), set_=added)
            )
        return found
