"""The schema of one store, apart from using it: for the command line."""

from collections.abc import Callable
from typing import TypeVar

from forge_jobs.clock import Clock, SystemClock
from forge_jobs.storage.sql.migrations import runner
from forge_jobs.storage.sql.migrations.runner import MigrationStatus
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
        return await self._run(runner.status)

    async def up(self) -> list[MigrationStatus]:
        """Apply what is missing; the migrations that were applied now.

        :raises SchemaMismatch: the schema is newer than this program
        """
        return await self._run(runner.up)

    async def sql(self) -> str:
        """What :meth:`up` would run; empty when there is nothing to do. Changes nothing."""
        return await self._run(runner.sql)

    async def _run(self, script: Callable[[Tx], R]) -> R:
        database = await open_database(self._address.options(), self._clock)
        try:
            return await database.write(script)
        finally:
            await database.close()
