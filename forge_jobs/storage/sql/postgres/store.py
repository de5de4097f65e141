"""Opens a Postgres database as a :class:`Storage`."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sqlalchemy import text

from forge_jobs.clock import Clock
from forge_jobs.errors import InvalidInput, NotFound, StorageError
from forge_jobs.reports import reporter
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.migrations import runner
from forge_jobs.storage.sql.migrations.migrator import SqlMigrator, settle_schema
from forge_jobs.storage.sql.postgres import rights
from forge_jobs.storage.sql.postgres.announcing import Announcer
from forge_jobs.storage.sql.postgres.config_store import PostgresConfigStore
from forge_jobs.storage.sql.postgres.database import PostgresDatabase
from forge_jobs.storage.sql.postgres.driver.connecting import PostgresOptions
from forge_jobs.storage.sql.postgres.flavor import PostgresFlavor
from forge_jobs.storage.sql.postgres.idle import PostgresCronStore
from forge_jobs.storage.sql.postgres.job_store import PostgresJobStore
from forge_jobs.storage.sql.postgres.listening import POLL_EVERY_S, waiters_of
from forge_jobs.storage.sql.postgres.migrating import bring_up, change
from forge_jobs.storage.sql.postgres.procs import PostgresProcStore
from forge_jobs.storage.sql.postgres.reporting import open_transactions, report

logger = reporter(__name__)

_SETTINGS = text("SELECT name, setting FROM pg_settings WHERE name = ANY (:names)")
_NAMES = [
    "server_version",
    "server_encoding",
    "synchronous_commit",
    "fsync",
    "full_page_writes",
    "synchronous_standby_names",
]
_MIGRATION_S = 3600.0
_DURABLE = ("on", "remote_write", "remote_apply", "local")


@dataclass(frozen=True)
class PostgresAddress:
    """The parts of a ``postgresql:`` URL."""

    options: PostgresOptions

    async def open(self, *, clock: Clock | None, migrate: bool, create: bool) -> Storage:
        """See ``Backend.open``."""
        return await _Opener(self.options, clock).open(migrate, create)

    def migrator(self, clock: Clock | None) -> SqlMigrator:
        """See ``Backend.migrator``."""

        return SqlMigrator(lambda _: _to_migrate(self.options, clock), bring_up, change)

    async def back_up(self, target: Path) -> None:
        """See ``Backend.back_up``."""
        fix = "use pg_dump, or the base backups of your server"
        raise InvalidInput("url", "names a PostgreSQL database", fix)


@asynccontextmanager
async def _to_migrate(
    options: PostgresOptions, clock: Clock | None
) -> AsyncGenerator[PostgresDatabase]:
    """Yield a connection for changes that may take long: of big tables, or after other
    programs'."""
    patient = replace(options, timeout=max(options.timeout, _MIGRATION_S))
    database = PostgresDatabase(patient, PostgresFlavor(options.schema, clock))
    try:
        yield database
    finally:
        await database.close()


class _Opener:
    """Opens bundles on one database: the first, and those for other event loops."""

    def __init__(self, options: PostgresOptions, clock: Clock | None) -> None:
        self._options = options
        self._clock = clock
        self._is_logged = False

    async def open(self, migrate: bool = False, create: bool = True) -> Storage:
        options = self._options
        flavor = PostgresFlavor(options.schema, self._clock, wakes=options.wakes)
        database = PostgresDatabase(options, flavor)
        try:
            settings = await database.read(_settings)
            _check_encoding(settings["server_encoding"])
            if not create and await database.read(runner.is_empty):
                raise NotFound(
                    "there is no store in this database and schema; correct the URL, or create "
                    "one with 'forge-jobs migrate up'"
                )
            if migrate or await database.read(runner.is_empty):
                async with _to_migrate(self._options, self._clock) as patient:
                    await settle_schema(patient, migrate, bring_up)
            else:
                await database.read(runner.check)
            database.store_id = await database.read(lambda tx: flavor.identity(tx.connection))
        except BaseException:
            await database.close()
            raise
        if self._options.wakes and not self._options.listens and not self._is_logged:
            self._is_logged = True
            logger.warning(
                "a pooler passes no notifications on; looking for work every %g s instead. Give "
                "direct=host:port in the URL to listen past it",
                POLL_EVERY_S,
            )
        database.waiters = waiters_of(self._options, database.store_id, flavor.channel)
        if self._options.wakes:
            database.announcer = Announcer(database.store_id, flavor.channel, database.announce)
        return Storage(
            PostgresJobStore(database),
            PostgresProcStore(database),
            PostgresConfigStore(database),
            PostgresCronStore(database),
            reopen=self.open,
            close=database.close,
            name=f"postgresql {self._options.shown}",
            server=f"PostgreSQL {settings['server_version']}",
            durability=_durability(settings),
            is_durable=_is_durable(settings),
            health=database.health,
            lacking=partial(database.read, partial(rights.lacking, schema=self._options.schema)),
            report=partial(report, database),
            open_transactions=partial(database.read, open_transactions),
            pool_size=self._options.pool_size,
        )


def _settings(tx: Tx) -> dict[str, str]:
    """Return the server's settings, as they hold for this role."""
    return {row.name: row.setting for row in tx.execute(_SETTINGS, {"names": _NAMES})}


def _check_encoding(encoding: str) -> None:
    """Check that the database keeps any letter, as payloads may hold any.

    :raises StorageError: the database is not UTF-8
    """
    if encoding != "UTF8":
        raise StorageError(
            f"the database is encoded in {encoding}, which has not every character a job may hold; "
            "give one that was created with ENCODING 'UTF8'"
        )


def _is_durable(found: Mapping[str, str]) -> bool:
    is_whole = "off" not in (found["fsync"], found["full_page_writes"])
    return is_whole and found["synchronous_commit"] in _DURABLE


def _durability(found: Mapping[str, str]) -> str:
    """Return which failures a commit survives with these settings."""
    commit = found["synchronous_commit"]
    if "off" in (found["fsync"], found["full_page_writes"]):
        return (
            "a commit survives a crash of the database server only; a loss of power may damage "
            "the database (fsync or full_page_writes is off)"
        )
    if commit not in _DURABLE:
        return (
            "a crash of the database server or a loss of power may undo the last commits "
            f"(synchronous_commit={commit})"
        )
    if commit != "local" and found["synchronous_standby_names"]:
        return f"a commit survives the loss of the server (synchronous_commit={commit}, standbys)"
    return f"a commit survives a crash and a loss of power (synchronous_commit={commit})"
