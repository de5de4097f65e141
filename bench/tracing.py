"""Counts what SQLite is asked, below every library: at the module that opens the file."""

import sqlite3
from collections.abc import Callable
from typing import Any

BORDERS = ("BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE")
"""How statements begin that only begin or end a transaction."""


class SqliteStatements:
    """Counts the statements of all connections that this process opens from now on.

    A look for changes of the file by other processes asks no table and takes no lock, and is
    counted separately. So is the begin or end of a transaction. A statement that is run for many
    rows counts once a row.
    """

    def __init__(self) -> None:
        self.count = 0
        self.checks = 0
        self.borders = 0
        self._connect: Callable[..., sqlite3.Connection] = sqlite3.connect
        module: Any = sqlite3
        module.connect = self._traced

    def _traced(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = self._connect(*arguments, **options)
        connection.set_trace_callback(self._note)
        return connection

    def _note(self, statement: str) -> None:
        if "data_version" in statement.lower():
            self.checks += 1
        elif statement.lstrip().upper().startswith(BORDERS):
            self.borders += 1
        else:
            self.count += 1
