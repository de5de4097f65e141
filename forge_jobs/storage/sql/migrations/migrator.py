"""The schema of a SQL store: looked at, brought up to date, created at the first opening."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from forge_jobs.storage.backend import MigrationStatus
from forge_jobs.storage.sql.database import Database
from forge_jobs.storage.sql.migrations import runner
from forge_jobs.storage.sql.transaction import Tx

Connect = Callable[[bool], AbstractAsyncContextManager[Database]]


class SqlMigrator:
    """A ``Migrator``. Each method connects, does one thing and disconnects.

    :param connect: called with False for a look, which must not create anything
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect

    async def status(self) -> list[MigrationStatus]:
        """See ``Migrator.status``."""
        async with self._connect(False) as database:
            return await database.read(runner.status)

    async def up(self) -> list[MigrationStatus]:
        """See ``Migrator.up``."""
        async with self._connect(True) as database:
            return await database.write(runner.up)

    async def sql(self) -> str:
        """See ``Migrator.sql``."""
        async with self._connect(False) as database:
            return await database.read(runner.sql)


async def settle_schema(database: Database, migrate: bool) -> None:
    """Create the schema of an empty database, else check it.

    :raises SchemaMismatch: it is older (and ``migrate`` is False) or newer
    """
    if migrate or await database.read(runner.is_empty):
        await database.write(runner.up if migrate else _create)
    await database.read(runner.check)


def _create(tx: Tx) -> None:
    # Looked at again by the writer: another process may have been first. The lock comes before
    # the look: Postgres learns of a schema that others made when it first locks a table.
    tx.flavor.lock(tx.connection, "schema")
    if runner.is_empty(tx):
        runner.up(tx)
