"""Transactions on a synchronous connection: the object that every transaction script gets.

A script is a plain function of a :class:`Tx`. The same script runs in the store's own transaction,
and in one that a caller holds open.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import ColumnElement, Connection, CursorResult, Table, insert, text
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.dml import Insert, ReturningInsert

from forge_jobs.errors import StorageError
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import Claim
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Demand, Transition
from forge_jobs.storage.sql.base.job_rows import Ended, Picked, Succeeded
from forge_jobs.storage.sql.base.tables import openings
from forge_jobs.storage.wakeups import BEAT, FLEET, HANDOVER, LETTERS, QUEUE

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

MINUTE_US = 60_000_000

KINDS = "kinds"
"""A named lock: of the kinds that live pods know."""

REVIVALS = "revivals"
"""A named lock: of claims that are being taken from silent owners."""

_BLOCK = 16
"""Rows to read before each check whether they are enough: a row may be of 1 MiB."""

Key = tuple[str, str, str]
"""A queue, the name of a limit, and a key of the limit."""

COUNTER_KEY = ("queue", "minute", "host_id", "part", "name")


OVERTAKEN = "gave up: other transactions kept storing the same ids or keys; try again"
"""The text of the error, when a script was begun again until its time was up."""


class Overtaken(Exception):
    """Another transaction was faster. The script must run again, in a new transaction."""


IsEnough = Callable[[Sequence[Any]], bool]


def read_until(
    fetch: Callable[[int], Sequence[Any]],
    is_enough: IsEnough,
    named: Callable[[Any], Any] | None = None,
) -> list[Any]:
    """Return the rows of a cursor up to the first block that is enough.

    :param fetch: returns the next rows, at most as many as given
    :param named: gives the values of a row their names
    """
    rows: list[Any] = []
    while block := fetch(_BLOCK):
        if named:
            block = list(map(named, block))
        rows += block
        if is_enough(block):
            break
    return rows


class HotStatement:
    """A hot statement, run for every job. A store may run it without SQLAlchemy.

    So the values are plain ones, and of the rows only names and values count.
    """

    def __init__(self, core: Executable) -> None:
        self.core = core

    @classmethod
    def of(cls, sql: str) -> "HotStatement":
        """Return the statement of a text, with ``:name`` for each parameter."""
        return cls(text(sql))


_ADD_OPENING = HotStatement(insert(openings))


class _Now:
    """Asks for the store's time at the first use, and keeps the time in the transaction.

    Not ``functools.cached_property``: Python 3.11 holds one lock for all transactions of a process
    while the store is asked. A silent store would stop the calls of every thread and event loop.
    """

    def __get__(self, tx: "Tx", owner: type["Tx"]) -> int:
        now = tx.__dict__["now"] = tx.flavor.now_us(tx.connection)
        return now


class Tx:
    """A connection inside a transaction, with the time of the call.

    Counts and wake-ups are collected and written once, by :meth:`finish`, just before the commit:
    one row per counter however many jobs a batch changes.

    :param known_queues: queues that have had a row. If another process has deleted one since, the
        next sweep creates the row again
    :param part: the writer whose counter rows these are. None: rows of this transaction alone,
        because a caller's transaction may stay open for long and others must not wait
    :param raw: the driver's connection, for statements that go to the driver directly
    """

    def __init__(
        self,
        connection: Connection,
        flavor: "Flavor",
        part: str | None,
        known_queues: AbstractSet[str] = frozenset(),
        raw: Any = None,
    ) -> None:
        self.connection = connection
        self.raw = raw
        self.flavor = flavor
        self.known_queues = known_queues
        self.ensured_queues: set[str] = set()
        self.deleted_queues: set[str] = set()
        self.is_callers = part is None
        """True when the transaction is a caller's, with a snapshot and locks of the caller's."""
        self.part = new_job_id() if part is None else part
        self._counts: dict[tuple[str, str, str], int] = {}
        self._topics: dict[str, None] = {}
        self.freed: dict[Key, None] = {}
        """Keys of limits of which claims have ended. See :meth:`free`."""

    now = _Now()
    """The store's time in microseconds, the same for the whole call."""

    def execute(
        self,
        statement: Executable,
        parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    ) -> CursorResult[*tuple[Any, ...]]:
        """Run one statement, for a sequence of parameters once for each."""
        return self.connection.execute(statement, parameters)

    def rows(
        self,
        statement: HotStatement,
        parameters: Mapping[str, object],
        is_enough: IsEnough | None = None,
    ) -> Sequence[Any]:
        """Run a hot statement, and return its rows with the columns as attributes.

        Truth values may be 0 and 1.

        :param is_enough: gets the rows read so far, a few at a time, and returns True to stop there
        """
        found = self.execute(statement.core, parameters)
        if not found.returns_rows:
            return ()
        if is_enough is None:
            return found.all()
        rows = read_until(found.fetchmany, is_enough)
        found.close()
        return rows

    def put(self, statement: HotStatement, rows: Sequence[Mapping[str, object]]) -> None:
        """Run a hot statement for each of the rows, at least one, all of the same columns."""
        self.execute(statement.core, rows)

    def count(self, queue: str, name: str, host_id: str = "", by: int = 1) -> None:
        """Add to the counter ``name`` of the queue, in the minute of the call."""
        # A host that is no text is of a spoilt record.
        key = queue, host_id if isinstance(host_id, str) else "", name
        self._counts[key] = self._counts.get(key, 0) + by

    def free(self, queue: str, limit_name: str | None, limit_key: str) -> None:
        """Note that a claim of a job has ended: its limit may have room for another one."""
        # Values that are no text are of a spoilt record.
        if isinstance(limit_name, str) and isinstance(limit_key, str):
            self.freed[queue, limit_name, limit_key] = None

    def take_freed(self, queue: str) -> list[Key]:
        """Return what was freed in the queue so far, for a claim of the same transaction."""
        found = [key for key in self.freed if key[0] == queue]
        for key in found:
            del self.freed[key]
        return found

    def _write_freed(self) -> None:
        """Write what was freed for the next claims, and wake them."""
        names = ("queue", "limit_name", "limit_key", "since")
        rows = [dict(zip(names, (*key, self.now), strict=True)) for key in self.freed]
        self.put(_ADD_OPENING, rows)
        self.wake_queues(queue for queue, *_ in self.freed)
        self.freed.clear()

    def wake_queue(self, queue: str) -> None:
        """Wake waiters of the queue, which may have due work."""
        self._topics[QUEUE + queue] = None

    def wake_queues(self, queues: Iterable[str]) -> None:
        """Wake waiters of the queues, which may have due work."""
        for queue in queues:
            self.wake_queue(queue)

    def wake_beats(self) -> None:
        """Make pods beat now."""
        self._topics[BEAT] = None

    def wake_fleet(self) -> None:
        """Wake the coordinator."""
        self._topics[FLEET] = None

    def wake_handover(self) -> None:
        """Wake the delivery of handovers."""
        self._topics[HANDOVER] = None

    def wake_letters(self) -> None:
        """Wake the relay of letters."""
        self._topics[LETTERS] = None

    @property
    def topics(self) -> list[str]:
        """The topics to wake."""
        return list(self._topics)

    def finish(self) -> list[tuple[str, int]]:
        """Write counts and signals. Return the raised topics with their sequence numbers."""
        if self.freed:
            self._write_freed()
        if self._counts:
            self._write_counts()
        return self.flavor.signal(self, list(self._topics)) if self._topics else []

    def _write_counts(self) -> None:
        minute = self.now - self.now % MINUTE_US
        self.put(
            self.flavor.add_counts,
            [
                {
                    "queue": queue,
                    "minute": minute,
                    "host_id": host_id,
                    "part": self.part,
                    "name": name,
                    "count": count,
                }
                for (queue, host_id, name), count in sorted(self._counts.items())
            ],
        )
        self._counts.clear()


class Flavor(Protocol):
    """The SQL and settings that differ between databases."""

    name: str
    add_counts: HotStatement
    """The statement that adds to counters, and makes those that are missing."""
    locks_rows: bool
    """True where an open transaction may hold single rows, False where it holds all or none."""
    hold_s: float
    """How long a batch of housekeeping may delay others at first, without the commit."""
    most_hold_s: float
    """The same with the commit, whose time is measured and shortens the next batch."""
    driver_errors: tuple[type[Exception], ...]
    """Errors of drivers, and of values that they cannot bind."""

    def translate(self, error: Exception) -> StorageError:
        """Return the error to raise in place of a driver's, without any text of the driver."""
        ...

    def now_us(self, connection: Connection) -> int:
        """Return the time of the store's own clock."""
        ...

    def identity(self, connection: Connection) -> str:
        """Return the ``store_id`` of stores on the connection's database."""
        ...

    def begin(self, connection: Connection) -> None:
        """Make sure that a caller's connection is inside a transaction, in the database too.

        :raises InvalidInput: the connection commits each statement by itself
        """
        ...

    def inside(self, connection: Connection) -> AbstractContextManager[None]:
        """Set what a script needs in a caller's transaction. After success all is as before."""
        ...

    def borrow(self, connection: object) -> "AbstractAsyncContextManager[AsyncConnection] | None":
        """Wrap a caller's driver connection for SQLAlchemy, None when this is something else.

        The connection must be inside a transaction.
        """
        ...

    def insert_ignore(self, table: Table) -> Insert:
        """Return an INSERT that drops rows which break a unique constraint."""
        ...

    def insert_held(self, table: Table, keys: Sequence[str]) -> ReturningInsert[Any]:
        """Return an INSERT that locks an existing row, and returns the rows as they are stored."""
        ...

    def insert_add(self, table: Table, keys: Sequence[str], column: str) -> HotStatement:
        """Return an INSERT that adds ``column`` to an existing row."""
        ...

    def insert_replace(self, table: Table, keys: Sequence[str]) -> HotStatement:
        """Return an INSERT that overwrites an existing row."""
        ...

    def insert_jobs(self, tx: Tx, rows: Sequence[Mapping[str, object]]) -> int:
        """Store jobs in the order of the rows, and return how many were stored.

        Jobs whose id or unique key another transaction has stored meanwhile are left out.
        """
        ...

    def advance_schedules(
        self, connection: Connection, rows: Sequence[Mapping[str, object]]
    ) -> None:
        """Write schedules that the transaction has locked.

        :param rows: ``name``, and every column that a firing changes
        """
        ...

    def claim(self, tx: Tx, queue: str, demand: Demand, lease: PodLease) -> Picked:
        """Claim as ``JobStore.exchange`` does. ``claimed_job`` makes the claims of the rows."""
        ...

    def succeed(self, tx: Tx, items: Sequence[tuple[Claim, Transition]]) -> Sequence[Succeeded]:
        """End the claims that still hold their jobs, and return the ended jobs.

        Jobs that another transaction has locked are left out.

        :param items: plain successes, of different jobs
        """
        ...

    def renew_claims(self, tx: Tx, renewals: Sequence[Mapping[str, object]]) -> set[str]:
        """Renew claims without waiting for row locks, and return the jobs that were not locked.

        :param renewals: ``job``, ``held`` (the token), ``worker`` ("" when held ahead)
        """
        ...

    def lock(self, connection: Connection, name: str, *, shared: bool = False) -> None:
        """Take a named lock until the end of the transaction."""
        ...

    def try_lock(self, connection: Connection, name: str) -> bool:
        """Take a named lock without waiting, and return whether the lock was free."""
        ...

    def overdue(self, tx: Tx, rules: Sequence[tuple[str, str, int]]) -> list[int]:
        """Return the places of the rules by which any job is overdue.

        :param rules: queue, status of finished jobs, until which time they have ended
        """
        ...

    def next_ended(self, tx: Tx, ended: Sequence[Ended], size: int) -> tuple[Sequence[Any], int]:
        """Lock and return at most ``size`` of the next overdue jobs, in order.

        Jobs that other transactions have locked are left out.

        :returns: the jobs, and how many of the first entries have no more of them
        """
        ...

    def refusal(self, error: Exception) -> str | None:
        """Return in words what prevents a row's deletion, None when the error is another."""
        ...

    def place(self, connection: Connection) -> Sequence[str]:
        """Return statements that create the schema for the tables, none when it exists."""
        ...

    def contains(self, column: ColumnElement[str], part: str) -> ColumnElement[bool]:
        """Return the condition that ``part`` occurs in the column, letter for letter."""
        ...

    def signal(self, tx: Tx, topics: Sequence[str]) -> list[tuple[str, int]]:
        """Wake other processes, with the commit, for these topics.

        :returns: the new sequence number of each topic, empty when the database itself wakes
            processes
        """
        ...
