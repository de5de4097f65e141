"""The schema of one store, apart from using it: for the command line."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from forge_jobs.clock import Clock, SystemClock
from forge_jobs.storage.sql.database import Database
from forge_jobs.storage.sql.migrations import runner
from forge_jobs.storage.sql.migrations.runner import MigrationStatus
from forge_jobs.storage.sql.private_files import PrivateFile
from forge_jobs.storage.sql.sqlite_store import SqliteAddress, open_database
from forge_jobs.storage.sql.transaction import Tx

R = TypeVar("R")


class Migrator:
    """Each method connects, does one thing and disconnects."""

    def __init__(self, address: SqliteAddress, *, clock: Clock | None = None) -> None:
        self._address = address
        self._clock = clock or SystemClock()

    async def status(self) -> list[MigrationStatus]:
        """Every migration, oldest first, and when it was applied."""
        return await self._look(runner.status)

    async def up(self) -> list[MigrationStatus]:
        """Apply what is missing; the migrations that were applied now.

        :raises SchemaMismatch: the schema is newer than this program
        """
        return await self._run(self._address.path, lambda database: database.write(runner.up))

    async def sql(self) -> str:
        """What :meth:`up` would run; empty when there is nothing to do. Changes nothing."""
        return await self._look(runner.sql)

    async def _look(self, script: Callable[[Tx], R]) -> R:
        return await self._run(
            _existing(self._address.path), lambda database: database.read(script)
        )

    async def _run(self, path: Path | None, work: Callable[[Database], Awaitable[R]]) -> R:
        """Work on the file, or on an empty one that is gone afterwards: looking makes none."""
        empty = None if path else PrivateFile()
        if empty:
            empty.acquire()
        try:
            options = self._address.options(empty.path if empty else path)
            database = await open_database(options, self._clock)
            try:
                return await work(database)
            finally:
                await database.close()
        finally:
            if empty:
                empty.release()


def _existing(path: Path | None) -> Path | None:
    # os.path also takes names that no file can have, for which Path.exists raises.
    return path if path and os.path.exists(path) else None
