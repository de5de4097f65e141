"""The schema of a SQL store: checked, brought up to date, created at the first opening."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TypeVar

from forge_jobs.storage.backend import MigrationStatus
from forge_jobs.storage.sql.base.database import Database, Script
from forge_jobs.storage.sql.migrations import runner

R = TypeVar("R")
D = TypeVar("D", bound=Database)

Connect = Callable[[bool], AbstractAsyncContextManager[D]]
BringUp = Callable[[D], Awaitable[list[MigrationStatus]]]
Change = Callable[[D, Script[R]], Awaitable[R]]


async def bring_up(database: Database) -> list[MigrationStatus]:
    """See ``Migrator.up``, in one transaction."""
    return await database.write(runner.up)


async def change(database: Database, script: Script[R]) -> R:
    """Run a script that changes the schema."""
    return await database.write(script)


class SqlMigrator:
    """A ``Migrator``. Each method connects, does one thing and disconnects.

    :param connect: called with False for a look, which must not create anything
    :param bring_up: applies what is missing
    :param change: runs a script that changes the schema
    """

    def __init__(
        self,
        connect: Connect[D],
        bring_up: BringUp[D] = bring_up,
        change: Change[D, list[MigrationStatus]] = change,
    ) -> None:
        self._connect = connect
        self._bring_up = bring_up
        self._change = change

    async def status(self) -> list[MigrationStatus]:
        """See ``Migrator.status``."""
        async with self._connect(False) as database:
            return await database.read(runner.status)

    async def up(self) -> list[MigrationStatus]:
        """See ``Migrator.up``."""
        async with self._connect(True) as database:
            return await self._bring_up(database)

    async def down(self, to: int) -> list[MigrationStatus]:
        """See ``Migrator.down``."""
        async with self._connect(False) as database:
            return await self._change(database, partial(runner.down, to=to))

    async def sql(self) -> str:
        """See ``Migrator.sql``."""
        async with self._connect(False) as database:
            return await database.read(runner.sql)


async def settle_schema(database: D, migrate: bool, bring_up: BringUp[D] = bring_up) -> None:
    """Create the schema of an empty database, else check the schema.

    :raises SchemaMismatch: the schema is older (and ``migrate`` is False), or newer and not for
        this program
    """
    if migrate:
        await bring_up(database)
    elif await database.read(runner.is_empty):
        await database.write(runner.up_if_empty)
    await database.read(runner.check)
