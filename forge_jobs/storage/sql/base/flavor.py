"""Every difference between the SQL databases that shared statements meet."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import ColumnElement, Connection, Table
from sqlalchemy.sql.dml import Insert

from forge_jobs.errors import StorageError
from forge_jobs.model.jobs import Claim
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Demand, Transition

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from forge_jobs.storage.sql.base.transaction import Often, Tx
    from forge_jobs.storage.sql.jobs.claim import Picked
    from forge_jobs.storage.sql.jobs.cleanup.overdue import Ended
    from forge_jobs.storage.sql.jobs.successes import Succeeded


class Flavor(Protocol):
    """What one database does its own way."""

    name: str
    locks_rows: bool
    """Whether a transaction that is open may hold single rows: False where it holds all or none."""
    hold_s: float
    """How long a batch of housekeeping may hold others up at first, its commit apart."""
    most_hold_s: float
    """The same with its commit, which is measured: the next batch is as much shorter."""
    driver_errors: tuple[type[Exception], ...]
    """What drivers raise: their own errors, and those of values they cannot bind."""

    def translate(self, error: Exception) -> StorageError:
        """The error to raise in place of a driver's. No text of the driver is in it."""
        ...

    def now_us(self, connection: Connection) -> int:
        """The store's own clock."""
        ...

    def identity(self, connection: Connection) -> str:
        """Which database the connection is of; equal to the ``store_id`` of stores on it."""
        ...

    def begin(self, connection: Connection) -> None:
        """Make sure that a caller's connection is inside a transaction, in the database too.

        :raises InvalidInput: the connection commits each statement by itself
        """
        ...

    def inside(self, connection: Connection) -> AbstractContextManager[None]:
        """What a script needs set in a caller's transaction; as it was before once it succeeds."""
        ...

    def borrow(self, connection: object) -> "AbstractAsyncContextManager[AsyncConnection] | None":
        """A caller's connection of the driver's own, for use by SQLAlchemy; None when it is
        something else. It must be inside a transaction.
        """
        ...

    def insert_ignore(self, table: Table) -> Insert:
        """An INSERT that drops rows which break a unique constraint."""
        ...

    def insert_add(self, table: Table, keys: Sequence[str], column: str) -> "Often":
        """An INSERT that adds ``column`` to the row that is there already."""
        ...

    def insert_replace(self, table: Table, keys: Sequence[str]) -> "Often":
        """An INSERT that writes over the row that is there already."""
        ...

    def insert_jobs(self, tx: "Tx", rows: Sequence[Mapping[str, object]]) -> int:
        """Store jobs, in the order of the rows; how many. Those whose id or unique key
        another transaction has stored meanwhile are left out."""
        ...

    def advance_schedules(
        self, connection: Connection, rows: Sequence[Mapping[str, object]]
    ) -> None:
        """Write schedules that the transaction has locked.

        :param rows: ``name``, and every column that a firing changes
        """
        ...

    def claim(self, tx: "Tx", queue: str, demand: Demand, lease: PodLease) -> "Picked":
        """See ``JobStore.claim``; the rows are those of which ``claimed_job`` makes the claims."""
        ...

    def succeed(self, tx: "Tx", items: Sequence[tuple[Claim, Transition]]) -> "Sequence[Succeeded]":
        """End the claims that still hold their jobs, but for those that somebody else has locked;
        the jobs that were ended.

        :param items: plain successes, of different jobs
        """
        ...

    def renew_claims(self, tx: "Tx", renewals: Sequence[Mapping[str, object]]) -> set[str]:
        """Renew claims without waiting for anybody's row lock; the jobs that were not locked.

        :param renewals: ``job``, ``held`` (the token), ``worker`` ("" when held ahead)
        """
        ...

    def lock(self, connection: Connection, name: str, *, shared: bool = False) -> None:
        """Keep others from taking the same lock until the end of the transaction."""
        ...

    def try_lock(self, connection: Connection, name: str) -> bool:
        """As :meth:`lock`, without waiting; whether the lock was free."""
        ...

    def overdue(self, tx: "Tx", rules: Sequence[tuple[str, str, int]]) -> list[int]:
        """The places of the rules by which there is anything.

        :param rules: queue, status of finished jobs, until which time they have ended
        """
        ...

    def next_ended(
        self, tx: "Tx", ended: "Sequence[Ended]", size: int
    ) -> "tuple[Sequence[Any], int]":
        """The next of these jobs, in order, at most ``size``, locked; of how many of the first
        entries there are no more. What others have locked is left out."""
        ...

    def refusal(self, error: Exception) -> str | None:
        """What does not let a row be deleted, in words; None when the error says something else."""
        ...

    def place(self, connection: Connection) -> Sequence[str]:
        """Statements that make the place for the tables, none when it is there."""
        ...

    def contains(self, column: ColumnElement[str], part: str) -> ColumnElement[bool]:
        """Whether ``part`` occurs in the column, letter for letter."""
        ...

    def signal(self, tx: "Tx", topics: Sequence[str]) -> list[tuple[str, int]]:
        """Tell other processes, with the commit, that these topics have news. Returns the
        new sequence number of each, empty when others are told by the database itself."""
        ...
