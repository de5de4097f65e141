"""Opens a SQLite file as a :class:`Storage`."""

from dataclasses import dataclass
from pathlib import Path

import anyio

from forge_jobs.clock import Clock, SystemClock
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.config_store import SqlConfigStore
from forge_jobs.storage.sql.cron_store import SqlCronStore
from forge_jobs.storage.sql.database import Database, SqliteConnection, SqliteOptions
from forge_jobs.storage.sql.flavor import SqliteFlavor, file_identity, known_signals
from forge_jobs.storage.sql.job_store import SqlJobStore
from forge_jobs.storage.sql.migrations import runner
from forge_jobs.storage.sql.notices import notices_of
from forge_jobs.storage.sql.private_files import PrivateFile
from forge_jobs.storage.sql.procs import SqlProcStore
from forge_jobs.storage.sql.transaction import Tx

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
    """What a ``sqlite:`` URL says.

    :param path: None: a private temporary file
    """

    path: Path | None
    synchronous: str
    timeout: float

    def options(self, path: Path | None = None) -> SqliteOptions:
        """The options of a connection to the file, or to ``path`` in its place."""
        return SqliteOptions(path or self.path or Path(), self.synchronous, self.timeout)


async def open_sqlite(
    address: SqliteAddress, *, clock: Clock | None = None, migrate: bool = False
) -> Storage:
    """Open the file, create or check its schema, and wire the four views."""
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
        database = await open_database(self._options, self._clock)
        try:
            await _settle_schema(database, migrate)
            signals = await database.read(lambda tx: known_signals(tx.connection))
        except BaseException:
            await database.close()
            raise
        database.notices.join(database.inbox, signals)
        if self._temporary:
            self._temporary.acquire()
            database.on_closed = self._temporary.release
        shown = ":memory:" if self._temporary else self._options.path.name
        return Storage(
            SqlJobStore(database),
            SqlProcStore(database),
            SqlConfigStore(database),
            SqlCronStore(database),
            reopen=self.open,
            close=database.close,
            name=f"sqlite {shown} (synchronous={self._options.synchronous})",
            durability=_DURABILITY[self._options.synchronous],
        )


async def open_database(options: SqliteOptions, clock: Clock) -> Database:
    """Connect a writer and a reader.

    :raises StorageError: the file cannot be opened or is not a database
    """
    # Half-open connections would keep their threads.
    with anyio.CancelScope(shield=True):
        writer = await SqliteConnection.open(options)
        try:
            reader = await SqliteConnection.open(options, read_only=True)
        except BaseException:
            await writer.close()
            raise
    store_id = file_identity(options.path)
    return Database(
        writer,
        reader,
        SqliteFlavor(clock),
        notices_of(store_id),
        store_id=store_id,
        path=options.path,
    )


async def _settle_schema(database: Database, migrate: bool) -> None:
    """Create the schema of an empty database, else check it."""
    if migrate or await database.read(runner.is_empty):
        await database.write(runner.up if migrate else _create)
    await database.read(runner.check)


def _create(tx: Tx) -> None:
    # Looked at again under the write lock: another process may have been first.
    if runner.is_empty(tx):
        runner.up(tx)
