"""Connections to one Postgres database, kept open and handed out one call at a time.

A new session is set up as scripts need, and changed for statements that are planned once when such
a statement comes. Behind a pooler, which may give every transaction to another session, a ``BEGIN``
sets what the transaction needs, and nothing is set for longer.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import asyncpg
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from forge_jobs.clock import SystemClock
from forge_jobs.errors import StorageError, Unavailable
from forge_jobs.model.ids import new_job_id
from forge_jobs.storage.pool_waits import waiting_for_connection
from forge_jobs.storage.sql.postgres.driver.connecting import (
    PostgresOptions,
    connect,
    statements_kept,
)
from forge_jobs.storage.sql.postgres.driver.errors import DRIVER_ERRORS, leads_nowhere
from forge_jobs.storage.sql.postgres.driver.literals import literals
from forge_jobs.storage.sql.postgres.driver.sessions import ONE_PLAN, plan_once

R = TypeVar("R")

_CLOSE_S = 1.0
"""A lost connection would otherwise take as long to close as the system likes."""

_AS_BEGUN = "RESET ALL"
_AS_BEGUN_FOR_NOW = "; ".join(
    f"SET LOCAL {each} TO DEFAULT" for each in ("lock_timeout", *ONE_PLAN)
)
"""Set a session up as at its begin: for good, or for one transaction."""

LONGEST_IDLE_S = 60.0
BRIEFLY_S = 0.02
"""A call waits so long for a free connection before opening another one."""


_elapsed = SystemClock().elapsed


class Stale(Exception):
    """The connection was lost while idle. Nothing has been asked of the server."""


class PostgresConnection:
    """A connection, and a synchronous SQLAlchemy connection on top."""

    def __init__(self, connection: AsyncConnection, driver: Any, plan_once: str) -> None:
        self.part = new_job_id()
        """The writer whose counter rows a transaction on this connection writes."""
        self.plans_once: bool | None = False
        """True when the session is set up for statements planned once. None: unknown."""
        self.idle_since = 0.0
        self._was_once = False
        self._connection = connection
        self._driver = driver
        self._plan_once = plan_once
        self._prepared: dict[str, Any] = {}

    @property
    def is_broken(self) -> bool:
        """True when the connection must not be used again."""
        return bool(self._driver.is_closed() or self._driver.is_in_transaction())

    async def fetch(self, statement: str, arguments: Sequence[Any], once: bool) -> list[Any]:
        """Run one statement as a transaction of its own.

        After a failure that is not the server's refusal the connection is not used again: the
        outcome of the statement is unknown.

        :param once: the statement is planned once
        """
        self._was_once = once
        try:
            await self._set_up(once)
            rows: list[Any] = await self._driver.fetch(statement, *arguments)
        except asyncpg.PostgresError as error:
            if leads_nowhere(error):
                self._driver.terminate()
            raise
        except BaseException:
            self._driver.terminate()
            raise
        return rows

    async def commit_then(self, statement: str, arguments: Sequence[Any], then: str) -> None:
        """Run one statement, planned once, in a transaction, and another right after its commit.

        All is one message. After an error the first statement may be committed or not.
        """
        self._was_once = True
        try:
            await self._set_up(True)
            prepared = self._prepared.get(statement)
            if prepared is None:
                # Kept: the driver drops the server's statement with this object.
                prepared = self._prepared[statement] = await self._driver.prepare(statement)
            call = f"EXECUTE {prepared.get_name()}({literals(arguments)})"
            await self._driver.execute(f"BEGIN; {call}; COMMIT; {then}")
        except asyncpg.PostgresError as error:
            self._prepared.clear()
            if leads_nowhere(error):
                self._driver.terminate()
            await self._roll_back()
            raise
        except BaseException:
            self._driver.terminate()
            raise

    async def _set_up(self, once: bool) -> None:
        """Set the session up for statements planned once, or as at its begin."""
        if self.plans_once is not once:
            self.plans_once = None
            await self._driver.execute(self._plan_once if once else _AS_BEGUN)
            self.plans_once = once

    async def execute(self, statement: str) -> None:
        """Run a statement without parameters, in one message and under any setup of the session."""
        try:
            await self._driver.execute(statement)
        except asyncpg.PostgresError as error:
            if leads_nowhere(error):
                self._driver.terminate()
            raise
        except BaseException:
            self._driver.terminate()
            raise

    async def transaction(self, begin: str, work: Callable[[Connection], R]) -> R:
        """Run ``work`` in one transaction. A failed one is rolled back, if need be by closing.

        :raises Stale: the transaction could not be begun
        """
        driver = self._driver
        plans_once = self.plans_once
        if plans_once and self._was_once:
            # Where statements and scripts take turns, the session stays as set up.
            begin = f"{_AS_BEGUN_FOR_NOW}; {begin}"
        elif plans_once is not False:
            begin = f"{_AS_BEGUN}; {begin}"
            # Known once committed: a rollback restores the setting.
            self.plans_once, plans_once = None, False
        self._was_once = False
        try:
            await driver.execute(begin)
        except DRIVER_ERRORS as error:
            driver.terminate()
            raise Stale from error
        except BaseException:
            driver.terminate()
            raise
        try:
            result: R = await self._connection.run_sync(_worked, work)
            ended = await driver.execute("COMMIT")
        except BaseException as error:
            if leads_nowhere(error):
                driver.terminate()
            await self._roll_back()
            raise
        if ended != "COMMIT":
            raise StorageError("the database rolled the transaction back, so nothing is stored")
        self.plans_once = plans_once
        return result

    async def _roll_back(self) -> None:
        try:
            if not self._driver.is_closed() and self._driver.is_in_transaction():
                async with asyncio.timeout(_CLOSE_S):
                    await self._driver.execute("ROLLBACK")
        except BaseException:  # the server rolls back what a lost connection leaves behind
            self._driver.terminate()

    async def close(self, *, politely: bool = True) -> None:
        """Close the connection within a second.

        :param politely: tell the server and wait for the answer
        """
        if politely:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_CLOSE_S):
                    await self._driver.close(timeout=_CLOSE_S)
        self._driver.terminate()
        with contextlib.suppress(Exception):
            await self._connection.invalidate()
            await self._connection.close()


def _worked(connection: Connection, work: Callable[[Connection], R]) -> R:
    try:
        return work(connection)
    finally:
        # This code ends the transaction itself. SQLAlchemy only has to forget that it saw
        # statements.
        connection.rollback()


class Connections:
    """A bounded pool of connections, of which the last used is the first to be used again.

    So an idle program keeps one connection busy, and few counter rows are written. A connection
    whose session is set up as the call needs goes first. A connection that was not used for a
    minute is closed, because a router in between may have dropped it without a sign.
    """

    def __init__(self, options: PostgresOptions) -> None:
        self.options = options
        self._engine = _engine(options)
        self._plan_once = plan_once(options)
        self._free = asyncio.Semaphore(options.pool_size)
        self._idle: list[PostgresConnection] = []
        self._lent = 0
        self.waits = 0
        """Calls that had to wait for a connection."""
        self._is_brief = False
        self._returned = asyncio.Event()

    @property
    def in_use(self) -> int:
        """Connections that calls have now. One is handed on to a call that waits for it."""
        return self.options.pool_size if self._free.locked() else self._lent

    def briefly(self, deadline: float) -> "_Loan":
        """Lend a connection for a moment, under any setup, see :meth:`one`. One call at a time.

        The call waits a while for a free connection before it opens one, and other calls wait
        for this one likewise.
        """
        return _Loan(self, deadline, once=None, brief=True)

    def one(self, deadline: float, *, once: bool | None) -> "_Loan":
        """Lend a connection for one transaction.

        :param once: for a statement planned once. None: for one that works under any setup
        :raises Unavailable: all were in use until the deadline
        """
        return _Loan(self, deadline, once=once, brief=False)

    async def lend(self, deadline: float, once: bool | None) -> PostgresConnection:
        """Take a connection, at the begin of :meth:`one`."""
        try:
            # Most often there is nothing to wait for, and no use for a timer.
            if not self._free.locked():
                await self._free.acquire()
            else:
                self.waits += 1
                with waiting_for_connection():
                    async with asyncio.timeout(max(0.0, deadline - _elapsed())):
                        await self._free.acquire()
        except TimeoutError:
            raise Unavailable(
                f"all {self.options.pool_size} connections of the pool were in use; give the URL "
                "a larger pool_size, or call the store less at once"
            ) from None
        try:
            found = await self._found(once)
        except BaseException:
            self._free.release()
            raise
        self._lent += 1
        return found

    async def give_back(self, found: PostgresConnection) -> None:
        """Return a connection to the pool, at the end of :meth:`one`."""
        try:
            self._lent -= 1
            if found.is_broken:
                await found.close(politely=False)
            else:
                found.idle_since = _elapsed()
                self._idle.append(found)
                returned, self._returned = self._returned, asyncio.Event()
                returned.set()
        finally:
            self._free.release()

    def note_brief(self, brief: bool) -> None:
        """Record whether a connection in use will be free in a moment."""
        self._is_brief = brief

    async def _found(self, once: bool | None) -> PostgresConnection:
        await self._close_old()
        if not self._idle and (self._lent if once is None else self._is_brief):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BRIEFLY_S):
                    await self._returned.wait()
        while self._idle:
            last = len(self._idle) - 1
            fits = (n for n in range(last, -1, -1) if self._idle[n].plans_once is once)
            found = self._idle.pop(next(fits, last))
            if not found.is_broken:
                return found
            await found.close(politely=False)
        return await self._opened()

    async def _close_old(self) -> None:
        # The longest unused stand first.
        before = _elapsed() - LONGEST_IDLE_S
        while self._idle and self._idle[0].idle_since < before:
            await self._idle.pop(0).close(politely=False)

    async def _opened(self) -> PostgresConnection:
        connection = await self._engine.connect()
        raw = await connection.get_raw_connection()
        opened = PostgresConnection(connection, raw.driver_connection, self._plan_once)
        try:
            await opened.execute("ROLLBACK")
        except BaseException:
            await opened.close(politely=False)
            raise
        return opened

    async def forget_idle(self) -> None:
        """Close idle connections: most likely they are lost as well."""
        while self._idle:
            await self._idle.pop().close(politely=False)

    async def close(self) -> None:
        """Close idle connections. None may be in use."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(each.close() for each in idle))
        await self._engine.dispose()


class _Loan:
    """A connection of the pool for the length of a block.

    Not a generator: asyncio warns of generators that begin while a loop is being ended, which is
    when many stores are closed.
    """

    __slots__ = ("_brief", "_deadline", "_found", "_once", "_pool")

    def __init__(
        self, pool: Connections, deadline: float, *, once: bool | None, brief: bool
    ) -> None:
        self._pool = pool
        self._deadline = deadline
        self._once = once
        self._brief = brief

    async def __aenter__(self) -> PostgresConnection:
        self._found = await self._pool.lend(self._deadline, self._once)
        if self._brief:
            self._pool.note_brief(True)
        return self._found

    async def __aexit__(self, *exc_info: object) -> None:
        if self._brief:
            self._pool.note_brief(False)
        await self._pool.give_back(self._found)


def _engine(options: PostgresOptions) -> AsyncEngine:
    async def opened() -> Any:
        driver = await connect(options)
        # SQLAlchemy's questions to a new connection share one transaction, and so one session of a
        # pooler.
        try:
            await driver.execute("BEGIN")
        except BaseException:  # no other code has the connection
            driver.terminate()
            raise
        return driver

    return create_async_engine(
        "postgresql+asyncpg://",
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",
        connect_args={
            "async_creator_fn": opened,
            "prepared_statement_cache_size": statements_kept(options),
        },
    )
