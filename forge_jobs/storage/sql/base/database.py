"""What the stores need of the connections to one SQL database."""

from collections.abc import Callable
from datetime import timedelta
from typing import Protocol, TypeVar

from forge_jobs.model.queues import Wake
from forge_jobs.storage.sql.base.transaction import Flavor, Tx

R = TypeVar("R")
S = TypeVar("S")
Script = Callable[[Tx], R]


class Database(Protocol):
    """The connections of one bundle, for one event loop."""

    @property
    def flavor(self) -> Flavor:
        """What this database does its own way."""
        ...

    @property
    def store_id(self) -> str:
        """Equal for all bundles on one store, whatever name they opened it by."""
        ...

    async def write(self, script: Script[R], *, patient: bool = True, synced: bool = True) -> R:
        """Run ``script`` in one write transaction and wake those whom it concerns.

        It happens wholly or not at all, also when the caller is cancelled meanwhile. The script
        may run several times, each time in a new transaction after the last was rolled back.

        :param patient: wait for what others have locked as long as any call may take; else for
            a moment, where single rows are locked
        :param synced: keep it across a loss of power, as far as the store was told to keep
            anything; else the database may leave that to the next commit that is synced
        :raises Locked: others held something for longer than that moment
        """
        ...

    async def write_then(
        self, script: Script[S], then: Callable[[S], R], *, synced: bool = True
    ) -> R:
        """:meth:`write`, and ``then`` with what it returned, once nothing is locked any more.

        For what takes time and needs no transaction. Whatever ``then`` raises undoes nothing.
        """
        ...

    async def read(self, script: Script[R]) -> R:
        """Run ``script`` on one snapshot. It must not write."""
        ...

    async def wait(self, queues: frozenset[str], at_most: timedelta, waiter: object | None) -> Wake:
        """See ``JobStore.wait_for_work``."""
        ...

    def ring(self, wake: Wake) -> None:
        """See ``JobStore.ring``."""
        ...
