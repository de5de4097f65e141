"""Runs transaction scripts on Postgres.

Each call is a task. A caller that is cancelled stops waiting, and the script still ends: cut off
half way, a claim would go on in the server while no process knows about the claim.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

import anyio
from msgspec import structs
from sqlalchemy import Connection

from forge_jobs.clock import SystemClock
from forge_jobs.errors import (
    InvalidInput,
    Locked,
    NotFound,
    StorageClosed,
    StorageError,
    StorageRefused,
    Unavailable,
)
from forge_jobs.model.queues import Wake
from forge_jobs.outages import Pauses
from forge_jobs.storage.listening import Waiters
from forge_jobs.storage.protocols import StoreHealth
from forge_jobs.storage.sql.base.database import KNOWN_FOR_S, Script
from forge_jobs.storage.sql.base.transaction import OVERTAKEN, Overtaken, Tx
from forge_jobs.storage.sql.postgres import rights
from forge_jobs.storage.sql.postgres.announcing import Announcer
from forge_jobs.storage.sql.postgres.direct import Direct, DirectScript
from forge_jobs.storage.sql.postgres.driver.connecting import PostgresOptions
from forge_jobs.storage.sql.postgres.driver.connections import Connections, Stale
from forge_jobs.storage.sql.postgres.driver.errors import (
    DRIVER_ERRORS,
    LACKS_PRIVILEGE,
    LOCK_TIMEOUT,
    leads_nowhere,
    may_go_better,
    sqlstate_of,
    translate,
)
from forge_jobs.storage.sql.postgres.driver.literals import fit_as_literals
from forge_jobs.storage.sql.postgres.driver.sessions import MOMENT_S, begin_read, begin_write
from forge_jobs.storage.sql.postgres.flavor import PostgresFlavor
from forge_jobs.storage.wakeups import WakeUps, wakeups_of


class _ToldWithCommit(NamedTuple):
    """A wake-up in the message of the commit: the topic, and the statement that wakes for it."""

    topic: str
    notice: str


R = TypeVar("R")
S = TypeVar("S")

_elapsed = SystemClock().elapsed
_PAUSES = Pauses(0.001, 0.05, jitter=1)
_TO_EXPLAIN_S = 2.0
_TO_ANNOUNCE_S = 1.0
_MORE_S = 2.0
"""How many seconds longer than the server's own limit the client waits for a silent server."""


class PostgresDatabase:
    """The connections of one bundle, for one event loop."""

    def __init__(self, options: PostgresOptions, flavor: PostgresFlavor) -> None:
        self.flavor = flavor
        self.store_id = ""
        self.options = options
        self.waiters: Waiters | None = None
        self.announcer: Announcer | None = None
        self._connections = Connections(options)
        self._begin_write = begin_write(options)
        self._begin_impatiently = begin_write(options, MOMENT_S)
        self._begin_read = begin_read(options)
        self._known_queues: set[str] = set()
        self._known_until = 0.0
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False

    def health(self) -> StoreHealth:
        """See ``Storage``."""
        heard = StoreHealth() if self.waiters is None else self.waiters.health()
        connections = self._connections
        return structs.replace(
            heard,
            pool_size=self.options.pool_size,
            pool_in_use=connections.in_use,
            pool_waits=connections.waits,
        )

    async def write(self, script: Script[R], *, patient: bool = True, synced: bool = True) -> R:
        """Run ``script`` in one write transaction, see ``Database.write``.

        The server syncs every commit alike.
        """
        begin = self._begin_write if patient else self._begin_impatiently
        result, tx = await self._call(script, begin)
        self._known_queues |= tx.ensured_queues
        self._known_queues -= tx.deleted_queues
        return result

    async def write_then(
        self, script: Script[S], then: Callable[[S], R], *, synced: bool = True
    ) -> R:
        """See ``Database.write_then``."""
        return then(await self.write(script))

    def settle(self) -> None:
        """See ``Database.settle``. Every commit is synced already."""

    async def direct(
        self,
        statement: Direct,
        values: Mapping[str, Any],
        *,
        repeatable: bool = False,
        topics_of: Callable[[list[Any]], Sequence[str]] = lambda _: (),
        surely: str = "",
    ) -> list[Any] | None:
        """Run a statement as a transaction of its own, once.

        None when the server has refused the statement for a reason that may not hold for a script,
        so that nothing has happened. None also when the way to the database allows no such
        statement.

        :param values: the parameters except ``clock`` and ``part``
        :param repeatable: None too when the connection was lost: the statement may have happened,
            and may be run once more
        :param topics_of: returns the topics that the rows wake
        :param surely: the one topic that the statement is sure to wake. Its wake-up may go in the
            same message, and then no rows come back
        :raises Unavailable: the database can do nothing now, or the outcome is unknown
        """
        if self._closed:
            raise StorageClosed("this program has closed the storage; open it again")
        if self.options.pooled:
            return None
        told = self._told_with_commit(surely, statement, values)
        return await self._to_the_end(self._direct(statement, values, repeatable, topics_of, told))

    def _told_with_commit(
        self, topic: str, statement: Direct, values: Mapping[str, Any]
    ) -> _ToldWithCommit | None:
        """Return what wakes other processes in the message of the statement. None: not this time.

        Where a waiter of this process waits, others are woken later.
        """
        if not topic or self.announcer is None or self.waiters is None:
            return None
        if self.waiters.wakeups.is_waited_for(topic) or not fit_as_literals(values.values()):
            return None
        notice = self.announcer.with_commit(topic)
        return None if notice is None else _ToldWithCommit(topic, notice)

    async def _direct(
        self,
        statement: Direct,
        values: Mapping[str, Any],
        repeatable: bool,
        topics_of: Callable[[list[Any]], Sequence[str]],
        told: _ToldWithCommit | None,
    ) -> list[Any] | None:
        timeout, began = self.options.timeout, _elapsed()
        given = {**values, "clock": self.flavor.set_time()}
        rows = None
        try:
            async with (
                asyncio.timeout(timeout + _MORE_S),
                self._connections.one(_elapsed() + timeout, once=statement.once) as connection,
            ):
                arguments = statement.arguments({**given, "part": connection.part})
                try:
                    if told is None:
                        rows = await connection.fetch(statement.text, arguments, statement.once)
                    else:
                        await connection.commit_then(statement.text, arguments, told.notice)
                        rows = []
                except TimeoutError:
                    raise
                except DRIVER_ERRORS as error:
                    if connection.is_broken:
                        # The other connections are most likely lost as well.
                        await self._connections.forget_idle()
                        may_help = repeatable
                    else:
                        is_out_of_order = isinstance(translate(error), Unavailable)
                        # With a wake-up in the message the error may be the wake-up's.
                        may_help = may_go_better(error) or not is_out_of_order or told is not None
                    if not may_help:
                        raise
        except TimeoutError:
            raise await self._silent(began) from None
        except DRIVER_ERRORS as error:
            raise await self._explained(error) from None
        if told is not None:
            self._told(told, is_sent=rows is not None)
        elif rows is not None:
            self._wake_waiters(topics_of(rows))
        return rows

    def _told(self, told: _ToldWithCommit, *, is_sent: bool) -> None:
        assert self.waiters is not None
        assert self.announcer is not None
        if is_sent:
            self.waiters.wake_for([told.topic])
        else:
            # What the message was to commit may stand all the same.
            self.announcer.refused()
            self._wake_waiters([told.topic])

    async def _silent(self, began: float) -> Unavailable:
        # An attempt to connect may be given up long before the call.
        waited = min(self.options.timeout, round(_elapsed() - began, 1))
        # Idle connections may be silent too, which no call would have noticed.
        await self._connections.forget_idle()
        return Unavailable(f"{self.options.server} gave no answer within {waited:g} s")

    async def _explained(self, error: Exception) -> StorageError:
        """Return the error to raise in place of a driver's."""
        if leads_nowhere(error):
            await self._connections.forget_idle()
        if sqlstate_of(error) != LACKS_PRIVILEGE:
            found = translate(error, self.options.server)
            # The error concerns nothing that a caller has named: the database existed at the
            # opening.
            return StorageRefused(str(found)) if self.store_id and _of_the_url(found) else found
        missing = ""
        with contextlib.suppress(*DRIVER_ERRORS, StorageError):
            async with (
                asyncio.timeout(_TO_EXPLAIN_S),
                self._connections.one(_elapsed() + _TO_EXPLAIN_S, once=False) as connection,
            ):
                rows = await connection.fetch(rights.MISSING, [self.options.schema], False)
                missing = rights.in_words((row["privilege"], row["object"]) for row in rows)
        if not missing:
            return translate(error, self.options.server)
        return StorageRefused(f"the role of the URL lacks a privilege: {missing}; GRANT it")

    async def ask(self, statement: DirectScript, values: Mapping[str, Any]) -> list[Any] | None:
        """Run a script that is one statement and may be run once more.

        :returns: the rows, with the columns as attributes. None as in :meth:`direct`
        """
        rows = await self.direct(statement, values, repeatable=True)
        return None if rows is None else [SimpleNamespace(**row) for row in rows]

    def knows(self, queues: set[str]) -> bool:
        """Return whether every one of the queues is sure to have a row."""
        self._forget_queues(_elapsed())
        return queues <= self._known_queues

    def _forget_queues(self, now: float) -> None:
        if now >= self._known_until:
            self._known_queues.clear()
            self._known_until = now + KNOWN_FOR_S

    def _wake_waiters(self, topics: Sequence[str]) -> None:
        """Wake waiters after a commit, those of this process at once."""
        if not topics or self.waiters is None:
            return
        woken_here = self.waiters.wake_for(topics)
        if self.announcer is not None:
            self.announcer.announce(topics, woken_here)

    async def announce(self, statement: str) -> float:
        """Run a statement that wakes other processes, without delaying calls, and return its
        seconds."""
        deadline = _elapsed() + _TO_ANNOUNCE_S
        async with (
            asyncio.timeout(_TO_ANNOUNCE_S),
            self._connections.briefly(deadline) as connection,
        ):
            begun = _elapsed()
            await connection.execute(statement)
            return _elapsed() - begun

    async def read(self, script: Script[R]) -> R:
        """Run ``script`` on one snapshot, see ``Database.read``."""
        result, _ = await self._call(script, self._begin_read)
        return result

    async def _call(self, script: Script[R], begin: str) -> tuple[R, Tx]:
        if self._closed:
            raise StorageClosed("this program has closed the storage; open it again")
        return await self._to_the_end(self._limited(script, begin))

    async def _to_the_end(self, call: Coroutine[Any, Any, R]) -> R:
        task = asyncio.ensure_future(call)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._running.discard(task)
        if not task.cancelled():
            # Retrieve the exception, also when no caller waits for the task any more.
            task.exception()

    async def _limited(self, script: Script[R], begin: str) -> tuple[R, Tx]:
        timeout = self.options.timeout
        began = _elapsed()
        deadline = began + timeout
        self._forget_queues(began)
        try:
            async with asyncio.timeout(timeout + _MORE_S):
                result, tx = await self._repeated(script, begin, deadline)
        except TimeoutError:
            raise await self._silent(began) from None
        except DRIVER_ERRORS as error:
            raise await self._explained(error) from None
        self._wake_waiters(tx.topics)
        return result, tx

    async def _repeated(self, script: Script[R], begin: str, deadline: float) -> tuple[R, Tx]:
        """Run the script again while other transactions conflict."""
        failures, fresh = 0, False
        while True:
            try:
                return await self._once(script, begin, deadline)
            except Stale as stale:
                if fresh:
                    raise stale.__cause__ or stale from None
                # The server has most likely restarted, and the other connections are lost as well.
                fresh = True
                await self._connections.forget_idle()
            except Overtaken:
                if _elapsed() >= deadline:
                    raise Unavailable(OVERTAKEN) from None
            except DRIVER_ERRORS as error:
                if begin is self._begin_impatiently and sqlstate_of(error) == LOCK_TIMEOUT:
                    problem = "an open transaction holds rows that the call needs"
                    raise Locked(f"{problem}; try again when it has ended") from None
                if not may_go_better(error) or _elapsed() >= deadline:
                    raise
            failures += 1
            await anyio.sleep(_PAUSES.after(failures))

    async def _once(self, script: Script[R], begin: str, deadline: float) -> tuple[R, Tx]:
        async with self._connections.one(deadline, once=False) as connection:
            part = connection.part

            def work(plain: Connection) -> tuple[R, Tx]:
                tx = Tx(plain, self.flavor, part, self._known_queues)
                result = script(tx)
                tx.finish()
                return result, tx

            return await connection.transaction(begin, work)

    async def wait(self, queues: frozenset[str], at_most: timedelta, waiter: object | None) -> Wake:
        """See ``JobStore.wait_for_work``."""
        assert self.waiters is not None
        await self.waiters.listen(frozenset())
        return await self.waiters.wait(queues, at_most.total_seconds(), waiter)

    def all_wakeups(self) -> WakeUps:
        """See ``Database.all_wakeups``."""
        return wakeups_of(self.store_id)

    def send(self, topics: Sequence[str]) -> None:
        """See ``Database.send``."""
        if self.announcer is not None and not self._closed:
            self.announcer.announce(topics)

    def wake(self, wake: Wake) -> None:
        """See ``JobStore.wake``."""
        assert self.waiters is not None
        self.waiters.wake(wake)

    async def close(self) -> None:
        """Let calls in flight finish and close the connections. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        # Also in a scope that is cancelled, which is when most stores are closed.
        with anyio.CancelScope(shield=True):
            try:
                if self.waiters is not None:
                    await self.waiters.close()
                if self._running:
                    await asyncio.wait(set(self._running))
                if self.announcer is not None:
                    await self.announcer.close()
            finally:
                await self._connections.close()


def _of_the_url(error: StorageError) -> bool:
    return isinstance(error, NotFound) or (isinstance(error, InvalidInput) and error.field == "url")
