"""Connections to one Postgres database, kept open and handed out one call at a time.

A session is set up as scripts need it when it begins, and changed for statements that are planned
once when one comes. Behind a pooler, which may give every transaction to another session, a
``BEGIN`` sets what its transaction needs, and nothing is set for longer.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import asyncpg
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from forge_jobs.clock import SystemClock
from forge_jobs.errors import StorageError, Unavailable
from forge_jobs.model.ids import new_job_id
from forge_jobs.storage.sql.postgres.driver_errors import DRIVER_ERRORS

R = TypeVar("R")

_CONNECT_S = 10.0
_CLOSE_S = 1.0
"""A connection that leads nowhere would else be waited for as long as the system likes."""

_IDLE_IN_TRANSACTION_S = 10
"""A frozen process must not keep its locks for longer."""

LOCK_S = 5
"""Then the call begins anew, so that it does not wait with locks of its own. At most half the time
limit, so that it can still say what it waited for."""

MOMENT_S = 0.5
"""How long a call waits for locks that is not to hold up others which need none of them."""

SHORT_S = 0.1
"""How long a statement of its own waits before the script of its call takes over, which need not
wait: longer than calls of ours hold a row."""

# A hot statement takes as long to plan as to run. So it is planned once, and that plan must be
# good for tables of any size, also when they were empty then: rows are looked up by index, one by
# one. All else is planned as the role and database say.
_ONE_PLAN = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}

_AS_BEGUN = "RESET ALL"
_AS_BEGUN_FOR_NOW = "; ".join(
    f"SET LOCAL {each} TO DEFAULT" for each in ("lock_timeout", *_ONE_PLAN)
)
"""Set a session up as it was when it began: for good, or for one transaction."""

_STATEMENTS = 256
"""How many prepared statements each connection keeps: more than the store has."""

_elapsed = SystemClock().elapsed


@dataclass(frozen=True)
class PostgresOptions:
    """How a database is reached.

    :param dsn: for the driver, with the password
    :param shown: what may be shown of it
    :param server: what to call it when it cannot be reached, with host and port
    :param schema: where the tables are
    :param pool_size: connections of one bundle at most
    :param timeout: seconds after which any call gives up
    :param pooled: a pooler stands between: no statement stays prepared
    :param wakes: False: nobody listens, everybody polls
    :param direct: host and port for LISTEN, where the URL leads to a pooler; None: as the URL says
    """

    dsn: str = field(repr=False)
    shown: str
    server: str = "the database"
    schema: str = "public"
    pool_size: int = 10
    timeout: float = 5.0
    pooled: bool = False
    wakes: bool = True
    direct: tuple[str, int] | None = field(default=None, repr=False)
    server_settings: Mapping[str, str] = field(default_factory=lambda: {"jit": "off"})

    @property
    def listens(self) -> bool:
        """Whether notices can come: no pooler gives a LISTEN back to who asked for it."""
        return self.wakes and (not self.pooled or self.direct is not None)

    @property
    def quoted_schema(self) -> str:
        """The schema as an identifier."""
        return '"' + self.schema.replace('"', '""') + '"'


async def connect(options: PostgresOptions, *, direct: bool = False) -> Any:
    """A connection of the driver's own.

    :param direct: past the pooler, when the options say how
    """
    way: dict[str, Any] = {}
    if direct and options.direct is not None:
        way = {"host": options.direct[0], "port": options.direct[1]}
    return await asyncpg.connect(
        options.dsn,
        **way,
        timeout=min(_CONNECT_S, options.timeout),
        command_timeout=options.timeout + 1,
        statement_cache_size=0 if options.pooled else _STATEMENTS,
        # A pooler refuses what it does not know, and gives each transaction to another session.
        server_settings=None if options.pooled else _session(options),
    )


class Stale(Exception):
    """The connection was lost while it lay idle; nothing has been asked of it."""


class PostgresConnection:
    """One connection, and a synchronous SQLAlchemy connection on top of it."""

    def __init__(self, connection: AsyncConnection, driver: Any, plan_once: str) -> None:
        self.part = new_job_id()
        """Whose counter rows a transaction on it writes."""
        self.plans_once: bool | None = False
        """Whether its session is set up for statements planned once; None: that is unknown."""
        self._was_once = False
        self._connection = connection
        self._driver = driver
        self._plan_once = plan_once

    @property
    def is_broken(self) -> bool:
        """Whether it must not be used again."""
        return bool(self._driver.is_closed() or self._driver.is_in_transaction())

    async def fetch(self, statement: str, arguments: Sequence[Any], once: bool) -> list[Any]:
        """Run one statement as a transaction of its own.

        Unless the server has refused it, a connection on which it fails is not used again:
        nobody knows what became of the statement.

        :param once: with a plan for all times
        """
        self._was_once = once
        try:
            if self.plans_once is not once:
                self.plans_once = None
                await self._driver.execute(self._plan_once if once else _AS_BEGUN)
                self.plans_once = once
            rows: list[Any] = await self._driver.fetch(statement, *arguments)
        except asyncpg.PostgresError:
            raise
        except BaseException:
            self._driver.terminate()
            raise
        return rows

    async def transaction(self, begin: str, work: Callable[[Connection], R]) -> R:
        """Run ``work`` in one transaction. One that fails is rolled back, by force if need be.

        :raises Stale: it could not be begun
        """
        driver = self._driver
        plans_once = self.plans_once
        if plans_once and self._was_once:
            # Where statements and scripts take turns, the session stays as it is.
            begin = f"{_AS_BEGUN_FOR_NOW}; {begin}"
        elif plans_once is not False:
            begin = f"{_AS_BEGUN}; {begin}"
            # Known when it is committed: a rollback takes it back.
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
        except BaseException:
            await self._roll_back()
            raise
        if ended != "COMMIT":
            raise StorageError("the database rolled the transaction back")
        self.plans_once = plans_once
        return result

    async def _roll_back(self) -> None:
        try:
            if not self._driver.is_closed() and self._driver.is_in_transaction():
                async with asyncio.timeout(_CLOSE_S):
                    await self._driver.execute("ROLLBACK")
        except BaseException:  # the server rolls back what a lost connection leaves behind
            self._driver.terminate()

    async def close(self) -> None:
        """Close it within a second."""
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
        # The transaction is ours; SQLAlchemy only has to forget that it saw statements.
        connection.rollback()


class Connections:
    """At most so many connections, of which the last used is the first to be used again.

    So an idle program keeps one of them busy, and few counter rows are written. Before it comes
    the last one whose session is set up as the call needs it.
    """

    def __init__(self, options: PostgresOptions) -> None:
        self.options = options
        self._engine = _engine(options)
        self._plan_once = _plan_once(options)
        self._free = asyncio.Semaphore(options.pool_size)
        self._idle: list[PostgresConnection] = []

    @contextlib.asynccontextmanager
    async def one(self, deadline: float, *, once: bool) -> AsyncGenerator[PostgresConnection]:
        """A connection for one transaction.

        :param once: for a statement planned once
        :raises Unavailable: all were in use until the deadline
        """
        try:
            # Most often there is nothing to wait for, and no use for a timer.
            if not self._free.locked():
                await self._free.acquire()
            else:
                async with asyncio.timeout(max(0.0, deadline - _elapsed())):
                    await self._free.acquire()
        except TimeoutError:
            raise Unavailable(
                f"all {self.options.pool_size} connections of the pool were in use"
            ) from None
        try:
            found = await self._found(once)
            try:
                yield found
            finally:
                if found.is_broken:
                    await found.close()
                else:
                    self._idle.append(found)
        finally:
            self._free.release()

    async def _found(self, once: bool) -> PostgresConnection:
        while self._idle:
            last = len(self._idle) - 1
            fits = (n for n in range(last, -1, -1) if self._idle[n].plans_once is once)
            found = self._idle.pop(next(fits, last))
            if not found.is_broken:
                return found
            await found.close()
        return await self._opened()

    async def _opened(self) -> PostgresConnection:
        connection = await self._engine.connect()
        raw = await connection.get_raw_connection()
        driver: Any = raw.driver_connection
        await _or_end(driver, "ROLLBACK")
        return PostgresConnection(connection, driver, self._plan_once)

    async def forget_idle(self) -> None:
        """Close what is idle: the server has most likely gone away."""
        while self._idle:
            await self._idle.pop().close()

    async def close(self) -> None:
        """Close what is idle. Nothing may be in use."""
        await self.forget_idle()
        await self._engine.dispose()


async def _or_end(driver: Any, command: str) -> None:
    """Run the command; a connection that fails at it is closed, for nobody else knows of it."""
    try:
        await driver.execute(command)
    except BaseException:
        driver.terminate()
        raise


def _engine(options: PostgresOptions) -> AsyncEngine:
    async def opened() -> Any:
        driver = await connect(options)
        # What SQLAlchemy asks of a new connection, it asks in one transaction, and so in one
        # session of a pooler.
        await _or_end(driver, "BEGIN")
        return driver

    return create_async_engine(
        "postgresql+asyncpg://",
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",
        connect_args={
            "async_creator_fn": opened,
            "prepared_statement_cache_size": 0 if options.pooled else _STATEMENTS,
        },
    )


def begin_write(options: PostgresOptions, lock_s: float = LOCK_S) -> str:
    """Begins a transaction that writes, whatever the defaults of the role and database are.

    :param lock_s: seconds for which it waits for a lock, at most
    """
    begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
    return "; ".join((begin, *_limits(options, lock_s)))


def begin_read(options: PostgresOptions) -> str:
    """Begins a transaction that reads one snapshot."""
    return "; ".join(("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", *_limits(options, LOCK_S)))


def _limits(options: PostgresOptions, lock_s: float) -> list[str]:
    """What its session does not say already, which behind a pooler is all."""
    said = {} if options.pooled else _settings(options, LOCK_S)
    wanted = _settings(options, lock_s).items()
    return [f"SET LOCAL {name} = {value}" for name, value in wanted if said.get(name) != value]


def _settings(options: PostgresOptions, lock_s: float) -> dict[str, str]:
    limit = int(options.timeout * 1000)
    return {
        "search_path": options.quoted_schema,
        "statement_timeout": str(limit),
        "lock_timeout": str(min(limit // 2, int(lock_s * 1000))),
        "idle_in_transaction_session_timeout": str(_IDLE_IN_TRANSACTION_S * 1000),
    }


def _session(options: PostgresOptions) -> dict[str, str]:
    """Which of the role's and the database's defaults do not hold."""
    return {
        **options.server_settings,
        "default_transaction_isolation": "read committed",
        "default_transaction_read_only": "off",
        **_settings(options, LOCK_S),
    }


def _plan_once(options: PostgresOptions) -> str:
    """Sets a session up for statements that are planned once."""
    lasting = {**_settings(options, SHORT_S), **_ONE_PLAN}
    return "; ".join(f"SET {name} = {lasting[name]}" for name in ("lock_timeout", *_ONE_PLAN))
