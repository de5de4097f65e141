"""SQLite stores that are lent to one test after another.

Opening a file takes longer than most tests of handlers. So the file and its two connections stay,
and each test gets new views of the store on the content of a fresh file.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from forge_jobs.errors import StorageClosed
from forge_jobs.model.queues import Wake
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.base.database import Script
from forge_jobs.storage.sql.migrations.migrator import settle_schema
from forge_jobs.storage.sql.sqlite.connection import SqliteConnection
from forge_jobs.storage.sql.sqlite.database import SqliteDatabase
from forge_jobs.storage.sql.sqlite.flavor import SqliteFlavor, file_identity, known_signals
from forge_jobs.storage.sql.sqlite.pragmas import SqliteOptions
from forge_jobs.storage.sql.sqlite.private_files import PrivateFile
from forge_jobs.storage.sql.sqlite.store import bundle_on
from forge_jobs.storage.wakeups import wakeups_of
from forge_jobs.testing.kit.clock import TravelClock

R = TypeVar("R")
S = TypeVar("S")

_SYNCHRONOUS = "off"
"""Power is not cut in tests."""

_TIMEOUT = 30.0

_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"


class PrivateStore:
    """A file of this process with a writer and a reader. Made and lent on the loop of the kit.

    :ivar clock: the clock of the store
    :ivar path: the file
    """

    def __init__(self, file: PrivateFile, clock: TravelClock) -> None:
        self.clock = clock
        self.path: Path = file.path
        self._file = file
        self._flavor = SqliteFlavor(clock)
        self._options = SqliteOptions(file.path, _SYNCHRONOUS, _TIMEOUT)
        self._connections: list[SqliteConnection] = []
        self._content = _Content()
        self._lent: list[_LentDatabase] = []
        self._is_fresh = True

    @classmethod
    async def make(cls) -> "PrivateStore":
        """Make a file with the schema."""
        file = PrivateFile()
        file.acquire()
        self = cls(file, TravelClock())
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise
        return self

    @property
    def url(self) -> str:
        """The URL of the file, for other programs. Their clock is the machine's."""
        return f"sqlite:///{self.path}?synchronous={_SYNCHRONOUS}"

    async def _open(self) -> None:
        writer = await SqliteConnection.open(self._options, self._flavor)
        self._connections.append(writer)
        reader = await SqliteConnection.open(self._options, self._flavor, read_only=True)
        self._connections.append(reader)
        for connection in self._connections:
            _serve_any_loop(connection)
        await settle_schema(self._database(), False)
        await writer.run(self._content.keep)

    async def lend(self) -> Storage:
        """Return the views of an empty store, at the machine's time.

        :raises StorageError: another program is writing to the file
        """
        self.clock.reset()
        if not self._is_fresh:
            await self._connections[0].run(self._content.restore)
        self._is_fresh = False
        return await self._bundle()

    async def take_back(self) -> None:
        """Close all views that were lent. A call through them is refused from now on."""
        lent, self._lent = self._lent, []
        for database in lent:
            await database.close()

    async def close(self) -> None:
        """Close the connections and remove the file."""
        await self.take_back()
        for connection in reversed(self._connections):
            await connection.close()
        self._content.close()
        self._file.release()

    def _database(self) -> "_LentDatabase":
        writer, reader = self._connections
        store_id = file_identity(self.path)
        return _LentDatabase(
            writer,
            reader,
            self._flavor,
            wakeups_of(store_id),
            store_id=store_id,
            path=self.path,
            shared=False,
        )

    async def _bundle(self) -> Storage:
        database = self._database()
        database.inboxes.open(await database.read(lambda tx: known_signals(tx.connection)))
        self._lent.append(database)
        return bundle_on(database, ":memory:", _SYNCHRONOUS, reopen=self._bundle)


class _Content:
    """The content of an empty store, to be put back after each test."""

    def __init__(self) -> None:
        self._copy = sqlite3.connect(":memory:", check_same_thread=False)
        self._version = 0
        self._statements: list[tuple[str, list[Any]]] = []

    def keep(self, store: sqlite3.Connection) -> None:
        """Take a copy."""
        store.backup(self._copy)
        self._version = _schema_version(store)
        for (table,) in store.execute(_TABLES).fetchall():
            rows = store.execute(f'SELECT * FROM "{table}"').fetchall()
            self._statements.append((f'DELETE FROM "{table}"', []))
            if rows:
                marks = ", ".join("?" * len(rows[0]))
                self._statements.append((f'INSERT INTO "{table}" VALUES ({marks})', rows))

    def restore(self, store: sqlite3.Connection) -> None:
        """Put the copy back."""
        store.execute("BEGIN IMMEDIATE")
        is_changed = _schema_version(store) != self._version
        if not is_changed:
            # Quicker than the copy of the file, after which each statement is prepared anew.
            store.execute("PRAGMA defer_foreign_keys = ON")
            for statement, rows in self._statements:
                store.executemany(statement, rows) if rows else store.execute(statement)
        store.execute("COMMIT")
        if is_changed:
            # The test has made tables, or other parts of a schema.
            self._copy.backup(store)
            self._version = _schema_version(store)

    def close(self) -> None:
        """Drop the copy."""
        self._copy.close()


def _schema_version(store: sqlite3.Connection) -> int:
    return int(store.execute("PRAGMA schema_version").fetchone()[0])


class _LentDatabase(SqliteDatabase):
    """The connections of a store in the hands of a test."""

    def write(
        self, script: Script[R], *, patient: bool = True, synced: bool = True
    ) -> Coroutine[Any, Any, R]:
        self._check_open()
        return super().write(script, patient=patient, synced=synced)

    def write_then(
        self, script: Script[S], then: Callable[[S], R], *, synced: bool = True
    ) -> Coroutine[Any, Any, R]:
        self._check_open()
        return super().write_then(script, then, synced=synced)

    def read(self, script: Script[R]) -> Coroutine[Any, Any, R]:
        self._check_open()
        return super().read(script)

    async def wait(self, queues: frozenset[str], at_most: timedelta, waiter: object | None) -> Wake:
        self._check_open()
        return await super().wait(queues, at_most, waiter)

    async def close(self) -> None:
        """Refuse further calls. The connections stay open for the next test."""
        self._closed = True
        self._watcher.close()
        self.inboxes.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StorageClosed("the storage is closed: its test has ended, or has closed it")


def _serve_any_loop(connection: SqliteConnection) -> None:
    """Let a connection's thread outlive callers whose event loop ends before the answer.

    The driver's own answer to such a caller would end the thread.
    """
    driver = connection._driver

    async def execute(work: Callable[..., R], *given: Any) -> R:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[R] = loop.create_future()

        def run() -> None:
            try:
                result = work(*given)
            except BaseException as error:  # any error is the caller's
                _answer(loop, answer, answer.set_exception, error)
            else:
                _answer(loop, answer, answer.set_result, result)

        driver._tx.put_nowait((None, run))
        return await answer

    driver._execute = execute  # type: ignore[method-assign]


def _answer(
    loop: asyncio.AbstractEventLoop,
    answer: "asyncio.Future[Any]",
    give: Callable[[Any], object],
    what: Any,
) -> None:
    def deliver() -> None:
        if not answer.done():
            give(what)

    with suppress(RuntimeError):  # the caller's loop has ended
        loop.call_soon_threadsafe(deliver)
