"""The connections of one bundle to a SQLite file, and how a transaction script runs on them.

One writer and one reader, each with a thread. A script runs there from the first statement to the
commit without a return to the event loop, so a transaction is never open while the loop awaits
something else. A caller that is cancelled leaves nothing half done: the caller stops waiting, and
the script still ends.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

import aiosqlite
import anyio
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from forge_jobs.clock import SystemClock
from forge_jobs.errors import StorageClosed, Unavailable
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.queues import Wake
from forge_jobs.reports import defer_reports, reporter
from forge_jobs.storage.protocols import StoreHealth
from forge_jobs.storage.sql.base.database import Script
from forge_jobs.storage.sql.base.transaction import Flavor
from forge_jobs.storage.sql.sqlite.driver_errors import TRANSLATED, is_busy, is_not_utf8, translate
from forge_jobs.storage.sql.sqlite.open_file import OpenFile
from forge_jobs.storage.sql.sqlite.pragmas import SqliteOptions, Syncing, pragmas
from forge_jobs.storage.sql.sqlite.statements import OwnTx, Statements
from forge_jobs.storage.sql.sqlite.waiting import FileWatcher
from forge_jobs.storage.sql.sqlite.wake_sockets import WakeSender
from forge_jobs.storage.wakeups import Inboxes, WakeUps, topics_of

logger = reporter(__name__)

R = TypeVar("R")
S = TypeVar("S")

_LOCK_WARNING_S = 1.0
_CLOSE_WITHIN_S = 0.25
"""How long calls in flight may wait for another program's lock once the store is being closed."""

_SHORTEST_PAUSE_S = 0.0005
_LONGEST_PAUSE_S = 0.01
_elapsed = SystemClock().elapsed


def _text_or_bytes(stored: bytes) -> str | bytes:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


async def on_driver_thread(driver: aiosqlite.Connection, work: Callable[[], R]) -> R:
    """Run ``work`` on the connection's own thread, in one hop.

    aiosqlite offers only one hop per statement. ``_execute``, by which aiosqlite runs its own
    functions there, is private: hence the pinned version, and a test that guards the private parts
    in use.
    """
    result: R = await driver._execute(work)  # type: ignore[no-untyped-call]
    return result


class SqliteConnection:
    """A connection with a thread, and a synchronous SQLAlchemy connection on top."""

    def __init__(self, driver: aiosqlite.Connection, timeout: float) -> None:
        self._driver = driver
        self._timeout = timeout
        self._raw: sqlite3.Connection = driver._conn
        self._file: OpenFile | None = None
        self._syncing: Syncing | None = None
        self.statements = Statements(self._raw)
        self._engine: Engine | None = None
        self._connection: Connection | None = None
        self._waited_long = False
        self._closing = False
        self._close_by = float("inf")
        # Each counter is written by one thread only. A call goes on when its caller is cancelled.
        self._calls_begun = 0
        self._calls_ended = 0

    @property
    def is_busy(self) -> bool:
        """True while the thread is running a call or waiting for a lock."""
        return self._calls_begun != self._calls_ended

    @classmethod
    async def open(cls, options: SqliteOptions, *, read_only: bool = False) -> "SqliteConnection":
        """Connect and set the pragmas.

        :raises StorageError: the file cannot be opened or is not a database
        """
        driver = aiosqlite.connect(options.path, isolation_level=None, timeout=0)
        # Otherwise a program that forgets to close a storage would never end. Killing the thread
        # then is no worse than killing the process: uncommitted writes did not happen.
        driver._thread.daemon = True
        # A thread that waits for the log would delay the heartbeat, or keep the file's write lock.
        defer_reports(driver._thread)
        try:
            await driver
        except sqlite3.Error as error:
            # aiosqlite has asked the thread to stop without waiting: the thread's last callback
            # could then meet an event loop that has ended.
            driver._thread.join()
            raise translate(error) from None
        self = cls(driver, options.timeout)
        try:
            await self.run(lambda deadline: self._prepare(options, read_only, deadline))
        except BaseException:
            await self.close()
            raise
        return self

    def _prepare(self, options: SqliteOptions, read_only: bool, deadline: float) -> None:
        self.repeated(deadline, lambda: self._raw.execute("PRAGMA journal_mode = WAL").fetchone())
        for pragma in pragmas(options, read_only=read_only):
            # Some pragmas read the file, which another process may be recovering.
            self.repeated(deadline, partial(self._raw.execute, pragma))
        self._syncing = Syncing(self._raw, options.synchronous)
        raw = self._raw
        self._file = OpenFile(options.path)
        self._engine = create_engine("sqlite://", creator=lambda: raw, poolclass=StaticPool)
        self._connection = self._engine.connect()

    async def run(self, work: Callable[[float], R]) -> R:
        """Run ``work(deadline)`` on the thread, driver errors translated.

        :raises Unavailable: the time limit is up
        """
        if self._closing:
            raise StorageClosed("the storage is closed")
        deadline = _elapsed() + self._timeout
        self._calls_begun += 1
        try:
            async with asyncio.timeout(self._timeout + 1):
                return await on_driver_thread(self._driver, lambda: self._guarded(work, deadline))
        except TimeoutError:
            raise Unavailable(f"no answer within {self._timeout:g} s") from None

    def _guarded(self, work: Callable[[float], R], deadline: float) -> R:
        try:
            if _elapsed() >= deadline:
                raise Unavailable(f"the store was busy for {self._timeout:g} s")
            return self._readable(work, deadline)
        except TRANSLATED as error:
            raise translate(error) from None
        finally:
            self._calls_ended += 1

    def _readable(self, work: Callable[[float], R], deadline: float) -> R:
        """Do ``work``, and do it again when a stored text is not UTF-8.

        Such a text must harm no other record. From then on the driver returns bytes for every text
        that is not UTF-8, and bytes are not of the column's type. Until then the driver decodes
        texts, which is quicker.
        """
        try:
            return work(deadline)
        except (DBAPIError, sqlite3.OperationalError) as error:
            if not is_not_utf8(error) or self._raw.text_factory is _text_or_bytes:
                raise
        self._raw.text_factory = _text_or_bytes
        return work(deadline)

    def transaction(
        self, begin: str, deadline: float, work: Callable[[Connection], R], *, synced: bool = True
    ) -> R:
        """Run ``work`` in one transaction. Called on the thread.

        ``BEGIN IMMEDIATE`` asks for the write lock first, so no later statement can find the lock
        taken.
        """
        connection, syncing = self._connection, self._syncing
        assert connection is not None
        assert syncing is not None
        assert self._file is not None

        def start() -> None:
            syncing.choose(synced=synced)
            self._raw.execute(begin)

        self.repeated(deadline, start)
        try:
            self._file.check()
            result = work(connection)
            self.repeated(deadline, lambda: self._raw.execute("COMMIT"))
        except BaseException:
            # Some failures (a full disk) have rolled back already.
            if self._raw.in_transaction:
                self._raw.execute("ROLLBACK")
            raise
        finally:
            # This code ends the transaction itself. SQLAlchemy only has to forget that it saw
            # statements.
            if connection.in_transaction():
                connection.rollback()
        return result

    @property
    def problem(self) -> str:
        """Why the file must not be used any more. "" when it may be used."""
        return self._file.problem if self._file else ""

    def data_version(self) -> int:
        """A number that changes when another connection has committed. Called on the thread."""
        return int(self._raw.execute("PRAGMA data_version").fetchone()[0])

    def repeated(self, deadline: float, step: Callable[[], R]) -> R:
        """Repeat ``step`` while another connection's lock is in the way."""
        start = _elapsed()
        while True:
            try:
                outcome = step()
            except (DBAPIError, sqlite3.OperationalError) as error:
                if not is_busy(error):
                    raise
            else:
                self._waited_long = self._waited_long and _elapsed() - start > _LOCK_WARNING_S
                return outcome
            waited = _elapsed() - start
            self._warn_once(waited)
            if _elapsed() >= min(deadline, self._close_by):
                raise Unavailable(f"another writer has held the database file for {waited:.0f} s")
            # In proportion to the wait, so that a free lock is taken soon.
            time.sleep(min(max(waited / 8, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S))

    def _warn_once(self, waited: float) -> None:
        if waited > _LOCK_WARNING_S and not self._waited_long:
            self._waited_long = True
            logger.warning(
                "another transaction has held the write lock of the database for %.1f s; "
                "while it does, nothing is claimed, finished or kept alive",
                waited,
            )

    async def close(self) -> None:
        """Let calls in flight finish, then close. The thread has ended afterwards.

        Calls that wait for another program's lock give up soon: that program may hold the lock for
        ever.
        """
        self._closing = True
        self._close_by = _elapsed() + _CLOSE_WITHIN_S
        try:
            if self._engine is not None:
                await on_driver_thread(self._driver, self._let_go)
        finally:
            await self._driver.close()
            # The thread has answered and is about to end. Without the join a caller may still see
            # the thread for a moment.
            self._driver._thread.join()

    def _let_go(self) -> None:
        assert self._connection is not None
        assert self._engine is not None
        self._connection.close()
        self._engine.dispose()


class SqliteDatabase:
    """A writer and a reader on one file, for one event loop.

    :param shared: other processes may use the file too
    """

    def __init__(
        self,
        writer: SqliteConnection,
        reader: SqliteConnection,
        flavor: Flavor,
        wakeups: WakeUps,
        *,
        store_id: str,
        path: Path,
        shared: bool = True,
    ) -> None:
        self.flavor = flavor
        self.wakeups = wakeups
        self.store_id = store_id
        self.path = path
        self.on_closed: Callable[[], None] | None = None
        self.inboxes = Inboxes(wakeups)
        self._writer = writer
        self._reader = reader
        self._part = new_job_id()
        self._known_queues: set[str] = set()
        self._closed = False
        self._watcher = FileWatcher(self, shared=shared)
        self._sender = WakeSender(path) if shared else None

    async def write(self, script: Script[R], *, patient: bool = True, synced: bool = True) -> R:
        """Run ``script`` in one write transaction and wake waiters.

        All or nothing, also when the caller is cancelled meanwhile.
        """
        return await self._writer.run(lambda deadline: self._write(script, deadline, synced))

    async def write_then(
        self, script: Script[S], then: Callable[[S], R], *, synced: bool = True
    ) -> R:
        """See ``Database.write_then``. ``then`` runs on the writer's thread too."""
        return await self._writer.run(lambda deadline: then(self._write(script, deadline, synced)))

    def _write(self, script: Script[R], deadline: float, synced: bool) -> R:
        def work(connection: Connection) -> tuple[R, OwnTx, list[tuple[str, int]]]:
            statements = self._writer.statements
            tx = OwnTx(connection, statements, self.flavor, self._part, self._known_queues)
            result = script(tx)
            return result, tx, tx.finish()

        result, tx, signals = self._writer.transaction(
            "BEGIN IMMEDIATE", deadline, work, synced=synced
        )
        self._known_queues |= tx.ensured_queues
        self._known_queues -= tx.deleted_queues
        if signals:
            self.wakeups.pass_on(signals)
            if self._sender is not None:
                self._sender.send(signals)
        return result

    async def read(self, script: Script[R]) -> R:
        """Run ``script`` on one consistent view of the store. ``script`` must not write."""
        reader = self._reader

        def once(deadline: float) -> R:
            return reader.transaction(
                "BEGIN",
                deadline,
                lambda connection: script(OwnTx(connection, reader.statements, self.flavor, "")),
            )

        # A reader seldom meets a lock: for a moment while another process recovers the log of a
        # killed one, or is the last to close the file. Then the whole read is repeated.
        return await reader.run(lambda deadline: reader.repeated(deadline, lambda: once(deadline)))

    async def wait(self, queues: frozenset[str], at_most: timedelta, waiter: object | None) -> Wake:
        """See ``JobStore.wait_for_work``."""
        return await self._watcher.wait(queues, at_most, waiter)

    def wake(self, wake: Wake) -> None:
        """See ``JobStore.wake``."""
        self.wakeups.wake(topics_of(wake))

    def health(self) -> StoreHealth:
        """See ``Storage``."""
        return StoreHealth(problem=self._writer.problem or self._reader.problem)

    async def data_version(self) -> tuple[str, int]:
        """Return a number that changes when another connection has committed, and the connection's
        name.

        The writer's number does not change with the writer's own commits. But a writer in use may
        be waiting for a lock. Then the reader's number is returned, which the writer's commits do
        change.
        """
        name, connection = (
            ("reader", self._reader) if self._writer.is_busy else ("writer", self._writer)
        )
        return name, await connection.run(lambda _: connection.data_version())

    async def close(self) -> None:
        """Let calls in flight finish and close both connections. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        self._watcher.close()
        self.inboxes.close()
        # Also in a cancelled scope, which is when most stores are closed.
        with anyio.CancelScope(shield=True):
            try:
                await self._reader.close()
            finally:
                await self._writer.close()
                if self._sender is not None:
                    self._sender.close()
                if self.on_closed is not None:
                    self.on_closed()
