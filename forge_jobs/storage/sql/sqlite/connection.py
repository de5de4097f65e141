"""A connection to a SQLite file: the thread, transactions, and waits for locks.

A script runs on the thread from the first statement to the commit without a return to the event
loop, so a transaction is never open while the loop awaits something else. A caller that is
cancelled leaves nothing half done: the caller stops waiting, and the script still ends.
"""

import asyncio
import sqlite3
import time
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import aiosqlite
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from forge_jobs.clock import SystemClock
from forge_jobs.errors import StorageClosed, Unavailable
from forge_jobs.model.ids import new_job_id
from forge_jobs.reports import defer_reports, reporter
from forge_jobs.storage.sql.base.database import KNOWN_FOR_S
from forge_jobs.storage.sql.base.transaction import Flavor, Tx
from forge_jobs.storage.sql.sqlite.driver_errors import TRANSLATED, is_busy, is_not_utf8, translate
from forge_jobs.storage.sql.sqlite.open_file import OpenFile
from forge_jobs.storage.sql.sqlite.pragmas import SqliteOptions, pragmas
from forge_jobs.storage.sql.sqlite.statements import SqliteTx

logger = reporter(__name__)

R = TypeVar("R")
S = TypeVar("S")
Signals = list[tuple[str, int]]

_LOCK_WARNING_S = 1.0
_CLOSE_WITHIN_S = 0.25
"""How long calls in flight may wait for another program's lock once the store is being closed."""

_SHORTEST_PAUSE_S = 0.0005
_LONGEST_PAUSE_S = 0.01
_WITHOUT_SYNC = {"full": "normal", "extra": "normal"}
"""By the ``synchronous`` of the URL: the setting of a commit that the next synced commit makes
durable. With a write-ahead log ``normal`` syncs at checkpoints, where it must, and not at commits.
"""

_elapsed = SystemClock().elapsed


def _text_or_bytes(stored: bytes) -> str | bytes:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


def on_driver_thread(
    driver: aiosqlite.Connection, work: Callable[..., R], *given: Any
) -> Coroutine[Any, Any, R]:
    """Run ``work(*given)`` on the connection's own thread, in one hop.

    aiosqlite offers only one hop per statement. ``_execute``, by which aiosqlite runs its own
    functions there, is private: hence the pinned version, and a test that guards the private parts
    in use.
    """
    # A function without a payload in its text: aiosqlite logs what the thread runs, at DEBUG.
    called: Coroutine[Any, Any, R] = driver._execute(  # type: ignore[no-untyped-call]
        lambda: work(*given)
    )
    return called


def _drop_results(error: BaseException | None) -> None:
    """Drop what the frames of a failed call hold, such as results. The error may be kept."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


class Syncing:
    """Switches between synced and unsynced commits of one connection, on the connection's thread.

    SQLite refuses the switch inside a transaction, so each transaction chooses before its begin.

    :param synchronous: the URL's setting, which synced commits use
    """

    def __init__(self, raw: sqlite3.Connection, synchronous: str) -> None:
        self._raw = raw
        self._synced = synchronous
        self._unsynced = _WITHOUT_SYNC.get(synchronous, synchronous)
        self._current = synchronous

    @property
    def is_mixed(self) -> bool:
        """True when the commits of one connection differ: some are synced, and some are not."""
        return self._synced != self._unsynced

    def choose(self, *, synced: bool) -> None:
        """Choose for the next transaction."""
        wanted = self._synced if synced else self._unsynced
        if wanted != self._current:
            self._raw.execute(f"PRAGMA synchronous = {wanted}")
            self._current = wanted


class SqliteConnection:
    """A connection with a thread, and a synchronous SQLAlchemy connection on top.

    :param read_only: the connection writes nothing, and its transactions take no write lock
    """

    def __init__(
        self, driver: aiosqlite.Connection, timeout: float, flavor: Flavor, *, read_only: bool
    ) -> None:
        self.on_signals: Callable[[Signals], None] | None = None
        """Called on the thread after each commit that raised signals."""
        self._driver = driver
        self._timeout = timeout
        self._flavor = flavor
        self._read_only = read_only
        self._part = "" if read_only else new_job_id()
        self._known_queues: set[str] = set()
        self._known_until = 0.0
        self._raw: sqlite3.Connection = driver._conn
        self._file: OpenFile | None = None
        self._syncing: Syncing | None = None
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
    async def open(
        cls, options: SqliteOptions, flavor: Flavor, *, read_only: bool = False
    ) -> "SqliteConnection":
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
        self = cls(driver, options.timeout, flavor, read_only=read_only)
        try:
            await self._call(self._prepare, options)
        except BaseException:
            await self.close()
            raise
        return self

    async def _call(self, work: Callable[..., R], *given: Any) -> R:
        """Run ``work(deadline, *given)`` on the thread, driver errors translated.

        :raises Unavailable: the time limit is up
        """
        if self._closing:
            raise StorageClosed("this program has closed the storage; open it again")
        deadline = _elapsed() + self._timeout
        self._calls_begun += 1
        try:
            async with asyncio.timeout(self._timeout + 1):
                return await on_driver_thread(self._driver, work, deadline, *given)
        except TimeoutError:
            raise Unavailable(
                f"the database file gave no answer within {self._timeout:g} s; look at its disk"
            ) from None
        except TRANSLATED as error:
            raise translate(error) from None

    def transact(
        self,
        script: Callable[[Tx], S],
        then: Callable[[S], R] | None = None,
        *,
        synced: bool = True,
    ) -> Coroutine[Any, Any, R]:
        """Run ``script`` in one transaction, and ``then`` with the answer after the commit."""
        return self._call(self._transact, script, then, synced)

    def settle(self) -> None:
        """Sync the log as the URL asks for, on the thread and outside of any transaction."""
        assert self._file is not None
        assert self._syncing is not None
        if self._syncing.is_mixed:
            self._file.sync_log()

    def data_version(self) -> Coroutine[Any, Any, int]:
        """A number that changes when another connection has committed."""
        return self._call(self._data_version)

    async def run(self, work: Callable[[sqlite3.Connection], R]) -> R:
        """Run ``work`` on the thread, outside of any transaction, and forget which queues there
        are.

        For work on the whole file that no script of a store does.

        :raises Unavailable: another program is writing to the file
        """
        return await self._call(self._run, work)

    # -- on the thread -----------------------------------------------------------------------

    def _run(self, deadline: float, work: Callable[[sqlite3.Connection], R]) -> R:
        try:
            self._check_time(deadline)
            self._known_queues.clear()
            return work(self._raw)
        finally:
            self._calls_ended += 1

    def _prepare(self, deadline: float, options: SqliteOptions) -> None:
        try:
            run = self._raw.execute
            self._repeated(deadline, lambda: run("PRAGMA journal_mode = WAL").fetchone())
            for pragma in pragmas(options, read_only=self._read_only):
                # Some pragmas read the file, which another process may be recovering.
                self._repeated(deadline, run, pragma)
            self._syncing = Syncing(self._raw, options.synchronous)
            raw = self._raw
            self._file = OpenFile(options.path)
            self._engine = create_engine("sqlite://", creator=lambda: raw, poolclass=StaticPool)
            self._connection = self._engine.connect()
        finally:
            self._calls_ended += 1

    def _data_version(self, deadline: float) -> int:
        try:
            self._check_time(deadline)
            return int(self._raw.execute("PRAGMA data_version").fetchone()[0])
        finally:
            self._calls_ended += 1

    def _transact(
        self,
        deadline: float,
        script: Callable[[Tx], Any],
        then: Callable[[Any], Any] | None,
        synced: bool,
    ) -> Any:
        """Run a call from the begin to the commit. Every call of a store comes this way.

        A text that is not UTF-8 must harm no other record. Once a script has met such a text, the
        driver returns bytes for every text that is not UTF-8, and the script runs again. Bytes are
        not of the column's type. Until then the driver decodes texts, which is quicker.
        """
        connection, raw = self._connection, self._raw
        assert connection is not None
        assert self._file is not None
        try:
            self._check_time(deadline)
            first_try = 0.0
            while True:
                try:
                    self._repeated(deadline, self._begin, synced)
                    self._file.check()
                    tx = SqliteTx(connection, self._flavor, self._part, self._known_queues, raw)
                    result = script(tx)
                    signals = tx.finish()
                    self._repeated(deadline, raw.execute, "COMMIT")
                    break
                except BaseException as error:
                    # A result that was not read to its end would keep the connection where the
                    # file stood: it would read no later change, and get no write lock.
                    _drop_results(error)
                    # Some failures (a full disk) have rolled back already.
                    if raw.in_transaction:
                        raw.execute("ROLLBACK")
                    if self._read_only and is_busy(error):
                        # A reader seldom meets a lock: for a moment while another process recovers
                        # the log of a killed one, or is the last to close the file.
                        first_try = first_try or _elapsed()
                        self._wait_for_lock(first_try, deadline)
                    elif is_not_utf8(error) and raw.text_factory is not _text_or_bytes:
                        raw.text_factory = _text_or_bytes
                    else:
                        raise
                finally:
                    # This code ends the transaction itself. SQLAlchemy only has to forget that
                    # it saw statements.
                    if connection.in_transaction():
                        connection.rollback()
            self._committed(tx, signals)
            return then(result) if then else result
        finally:
            self._calls_ended += 1

    def _begin(self, synced: bool) -> None:
        if self._read_only:
            self._raw.execute("BEGIN")
            return
        assert self._syncing is not None
        self._syncing.choose(synced=synced)
        # Asks for the write lock first, so no later statement can find the lock taken.
        self._raw.execute("BEGIN IMMEDIATE")

    def _committed(self, tx: Tx, signals: Signals) -> None:
        self._known_queues |= tx.ensured_queues
        self._known_queues -= tx.deleted_queues
        if signals and self.on_signals is not None:
            self.on_signals(signals)

    def _check_time(self, deadline: float) -> None:
        now = _elapsed()
        if now >= deadline:
            raise Unavailable(f"the database file was busy for {self._timeout:g} s")
        if now >= self._known_until:
            self._known_queues.clear()
            self._known_until = now + KNOWN_FOR_S

    @property
    def problem(self) -> str:
        """Why the file must not be used any more. "" when it may be used."""
        return self._file.problem if self._file else ""

    def _repeated(self, deadline: float, step: Callable[..., R], *given: Any) -> R:
        """Repeat ``step`` while another connection's lock is in the way."""
        first_try = 0.0
        while True:
            try:
                outcome = step(*given)
            except (DBAPIError, sqlite3.OperationalError) as error:
                if not is_busy(error):
                    raise
            else:
                if self._waited_long:
                    waited = _elapsed() - first_try if first_try else 0.0
                    self._waited_long = waited > _LOCK_WARNING_S
                return outcome
            first_try = first_try or _elapsed()
            self._wait_for_lock(first_try, deadline)

    def _wait_for_lock(self, first_try: float, deadline: float) -> None:
        waited = _elapsed() - first_try
        self._warn_once(waited)
        if _elapsed() >= min(deadline, self._close_by):
            raise Unavailable(
                f"another transaction has held the write lock of the database for {waited:.0f} s; "
                "look for a program that keeps a transaction open"
            )
        # In proportion to the wait, so that a free lock is taken soon.
        time.sleep(min(max(waited / 8, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S))

    def _warn_once(self, waited: float) -> None:
        if waited > _LOCK_WARNING_S and not self._waited_long:
            self._waited_long = True
            logger.warning(
                "another transaction has held the write lock of the database for %.1f s, and "
                "until it ends no job is claimed, finished or kept alive; look for a program that "
                "keeps a transaction open",
                waited,
            )

    # -- on the event loop -------------------------------------------------------------------

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
