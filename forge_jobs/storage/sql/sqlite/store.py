"""Opens a SQLite file as a :class:`Storage`."""

import os
import shutil
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from forge_jobs.clock import Clock, SystemClock
from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.storage.protocols import Storage, StoreReport
from forge_jobs.storage.sql.base.database import Database
from forge_jobs.storage.sql.config.store import SqlConfigStore
from forge_jobs.storage.sql.cron.store import SqlCronStore
from forge_jobs.storage.sql.fleet.pods import SqlProcStore
from forge_jobs.storage.sql.migrations.migrator import SqlMigrator, settle_schema
from forge_jobs.storage.sql.migrations.runner import schema_version
from forge_jobs.storage.sql.sqlite import backups
from forge_jobs.storage.sql.sqlite.connection import SqliteConnection
from forge_jobs.storage.sql.sqlite.database import SqliteDatabase
from forge_jobs.storage.sql.sqlite.flavor import SqliteFlavor, file_identity, known_signals
from forge_jobs.storage.sql.sqlite.job_store import SqliteJobStore
from forge_jobs.storage.sql.sqlite.pragmas import SqliteOptions
from forge_jobs.storage.sql.sqlite.private_files import PrivateFile
from forge_jobs.storage.wakeups import wakeups_of

_DURABILITY = {
    "extra": "a commit survives a crash and a loss of power (synchronous=extra)",
    "full": "a commit survives a crash and a loss of power (synchronous=full)",
    "normal": "a commit survives a crash; a loss of power may undo the last ones "
    "(synchronous=normal)",
    "off": "a commit survives a crash of the process only; a loss of power may damage the file "
    "(synchronous=off)",
}


@dataclass(frozen=True)
class SqliteAddress:
    """The parts of a ``sqlite:`` URL.

    :param path: None: a private temporary file
    """

    path: Path | None
    synchronous: str
    timeout: float

    async def open(self, *, clock: Clock | None, migrate: bool, create: bool) -> Storage:
        """See ``Backend.open``."""
        if not create and not self._exists():
            raise NotFound(
                "there is no database at this URL; correct it, or create one with "
                "'forge-jobs migrate up'"
            )
        return await open_sqlite(self, clock=clock, migrate=migrate)

    def migrator(self, clock: Clock | None) -> SqlMigrator:
        """See ``Backend.migrator``."""

        @asynccontextmanager
        async def connect(to_change: bool) -> AsyncGenerator[Database]:
            # A look creates no file: a temporary empty one stands for a missing store.
            path = self.path if to_change or self._exists() else None
            private = PrivateFile() if path is None else None
            if private:
                private.acquire()
            try:
                options = self.options(private.path if private else path)
                database = await open_database(options, clock or SystemClock())
                try:
                    yield database
                finally:
                    await database.close()
            finally:
                if private:
                    private.release()

        return SqlMigrator(connect)

    async def back_up(self, target: Path) -> None:
        """See ``Backend.back_up``."""
        if self.path is None:
            raise InvalidInput("url", "names a private store in memory", "give that of a file")
        path = self.path
        await anyio.to_thread.run_sync(lambda: backups.copy(path, target, self.timeout))

    def _exists(self) -> bool:
        # os.path also takes names that no file can have, for which Path.exists raises.
        return self.path is None or os.path.exists(self.path)

    def options(self, path: Path | None = None) -> SqliteOptions:
        """Return the options of a connection to the file, or to ``path`` instead."""
        return SqliteOptions(path or self.path or Path(), self.synchronous, self.timeout)


async def open_sqlite(
    address: SqliteAddress, *, clock: Clock | None = None, migrate: bool = False
) -> Storage:
    """Open the file, create or check the schema, and wire the four views."""
    temporary = PrivateFile() if address.path is None else None
    options = address.options(temporary.path if temporary else None)
    used_clock = clock or SystemClock()
    if temporary:
        temporary.acquire()
    try:
        return await _Opener(options, used_clock, temporary).open(migrate)
    finally:
        if temporary:
            temporary.release()


class _Opener:
    """Opens bundles on one file: the first, and those for other event loops."""

    def __init__(self, options: SqliteOptions, clock: Clock, temporary: PrivateFile | None) -> None:
        self._options = options
        self._clock = clock
        self._temporary = temporary

    async def open(self, migrate: bool = False) -> Storage:
        shared = self._temporary is None
        database = await open_database(self._options, self._clock, shared=shared)
        try:
            await settle_schema(database, migrate)
            signals = await database.read(lambda tx: known_signals(tx.connection))
        except BaseException:
            await database.close()
            raise
        database.inboxes.open(signals)
        if self._temporary:
            self._temporary.acquire()
            database.on_closed = self._temporary.release
        shown = ":memory:" if self._temporary else self._options.path.name
        return bundle_on(database, shown, self._options.synchronous, reopen=self.open)


def bundle_on(
    database: SqliteDatabase,
    shown: str,
    synchronous: str,
    *,
    reopen: Callable[[], Awaitable[Storage]],
) -> Storage:
    """Return the four views of a file.

    :param shown: the name of the file for people
    :param reopen: opens another bundle on the file
    """
    return Storage(
        SqliteJobStore(database),
        SqlProcStore(database),
        SqlConfigStore(database),
        SqlCronStore(database),
        reopen=reopen,
        close=database.close,
        name=f"sqlite {shown} (synchronous={synchronous})",
        server=f"SQLite {sqlite3.sqlite_version}",
        durability=_DURABILITY[synchronous],
        health=database.health,
        lacking=partial(lacking, database),
        report=partial(report, database),
        is_durable=synchronous in ("extra", "full"),
    )


async def lacking(database: SqliteDatabase) -> str:
    """See ``Storage``. A file that cannot be written is opened all the same, for reads."""
    return await anyio.to_thread.run_sync(lambda: _not_writable(database.path))


def _not_writable(path: Path) -> str:
    # SQLite makes the other two files beside the first, with the rights of the first.
    files = [path, *(Path(f"{path}{end}") for end in ("-wal", "-shm"))]
    closed = [each.name for each in files if each.exists() and not os.access(each, os.W_OK)]
    if not closed:
        return ""
    return (
        f"this user may not write {', '.join(closed)}; let the user write the file and the folder, "
        "for example with chmod or chown"
    )


async def report(database: SqliteDatabase) -> StoreReport:
    """See ``Storage``."""
    version = await database.read(schema_version)
    # A look at a disk of the network may take long.
    return await anyio.to_thread.run_sync(lambda: _of_files(database.path, version))


def _of_files(path: Path, version: int) -> StoreReport:
    return StoreReport(
        size_bytes=_or_none(lambda: os.path.getsize(path)),
        wal_bytes=_or_none(lambda: os.path.getsize(f"{path}-wal")),
        disk_free=_or_none(lambda: shutil.disk_usage(path.parent).free),
        schema_version=version,
    )


def _or_none(read: Callable[[], int]) -> int | None:
    try:
        return read()
    except OSError:
        return None


async def open_database(
    options: SqliteOptions, clock: Clock, *, shared: bool = True
) -> SqliteDatabase:
    """Connect a writer and a reader.

    :param shared: other processes may use the file too
    :raises StorageError: the file cannot be opened or is not a database
    """
    flavor = SqliteFlavor(clock)
    # Half-open connections would keep their threads.
    with anyio.CancelScope(shield=True):
        writer = await SqliteConnection.open(options, flavor)
        try:
            reader = await SqliteConnection.open(options, flavor, read_only=True)
        except BaseException:
            await writer.close()
            raise
    store_id = file_identity(options.path)
    return SqliteDatabase(
        writer,
        reader,
        flavor,
        wakeups_of(store_id),
        store_id=store_id,
        path=options.path,
        shared=shared,
    )
