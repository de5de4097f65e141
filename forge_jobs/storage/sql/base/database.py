"""The interface that stores need of the connections to one SQL database."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol, TypeVar

from forge_jobs.model.queues import Wake
from forge_jobs.storage.sql.base.transaction import Flavor, Tx
from forge_jobs.storage.wakeups import WakeUps

R = TypeVar("R")
S = TypeVar("S")
Script = Callable[[Tx], R]

KNOWN_FOR_S = 60.0
"""Then a program looks again whether queues have rows: one that it knew may have been deleted."""


class Database(Protocol):
    """The connections of one bundle, for one event loop."""

    @property
    def flavor(self) -> Flavor:
        """The SQL and settings that differ on this database."""
        ...

    @property
    def store_id(self) -> str:
        """Equal for all bundles on one store, opened by any name."""
        ...

    async def write(self, script: Script[R], *, patient: bool = True, synced: bool = True) -> R:
        """Run ``script`` in one write transaction and wake waiters.

        All or nothing, also when the caller is cancelled meanwhile. The script may run several
        times, each time in a new transaction after the last was rolled back.

        :param patient: wait for locks as long as any call may take. Otherwise wait only for a
            moment, where single rows are locked
        :param synced: keep the commit across a loss of power, as far as the store was told to.
            Otherwise the database may leave that to the next synced commit
        :raises Locked: another transaction held a lock for longer than that moment
        """
        ...

    async def write_then(
        self, script: Script[S], then: Callable[[S], R], *, synced: bool = True
    ) -> R:
        """Run :meth:`write`, and then ``then`` on the result, once nothing is locked any more.

        For slow work that needs no transaction. An error of ``then`` undoes nothing.
        """
        ...

    def settle(self) -> None:
        """Make durable what unsynced commits have written.

        Called in ``then`` of :meth:`write_then`, so that no lock is held during the wait for the
        disk. Does nothing where the database syncs every commit, or the URL says not to sync.
        """
        ...

    async def read(self, script: Script[R]) -> R:
        """Run ``script`` on one snapshot. ``script`` must not write."""
        ...

    async def wait(self, queues: frozenset[str], at_most: timedelta, waiter: object | None) -> Wake:
        """See ``JobStore.wait_for_work``."""
        ...

    def all_wakeups(self) -> WakeUps:
        """Return the wake-ups of the store in this process."""
        ...

    def send(self, topics: Sequence[str]) -> None:
        """Send topics without a number to other processes, without waiting."""
        ...

    def wake(self, wake: Wake) -> None:
        """See ``JobStore.wake``."""
        ...
