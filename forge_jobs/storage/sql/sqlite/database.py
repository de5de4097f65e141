"""The connections of one bundle to a SQLite file: a writer and a reader, two threads."""

from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import anyio

from forge_jobs.model.queues import Wake
from forge_jobs.storage.protocols import StoreHealth
from forge_jobs.storage.sql.base.database import Script
from forge_jobs.storage.sql.base.transaction import Flavor
from forge_jobs.storage.sql.sqlite.connection import Signals, SqliteConnection
from forge_jobs.storage.sql.sqlite.waiting import FileWatcher
from forge_jobs.storage.sql.sqlite.wake_sockets import WakeSender
from forge_jobs.storage.wakeups import UNNUMBERED, Inboxes, WakeUps, topics_of

R = TypeVar("R")
S = TypeVar("S")


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
        self._closed = False
        self._watcher = FileWatcher(self, shared=shared)
        self._sender = WakeSender(path) if shared else None
        self._hints: WakeSender | None = None
        writer.on_signals = self._pass_on

    # No coroutines of their own: a call has one frame on the event loop between the store's
    # method and the thread.

    def write(
        self, script: Script[R], *, patient: bool = True, synced: bool = True
    ) -> Coroutine[Any, Any, R]:
        """Run ``script`` in one write transaction and wake waiters.

        All or nothing, also when the caller is cancelled meanwhile.
        """
        return self._writer.transact(script, synced=synced)

    def write_then(
        self, script: Script[S], then: Callable[[S], R], *, synced: bool = True
    ) -> Coroutine[Any, Any, R]:
        """See ``Database.write_then``. ``then`` runs on the writer's thread too."""
        return self._writer.transact(script, then, synced=synced)

    def settle(self) -> None:
        """See ``Database.settle``."""
        self._writer.settle()

    def read(self, script: Script[R]) -> Coroutine[Any, Any, R]:
        """Run ``script`` on one consistent view of the store. ``script`` must not write."""
        return self._reader.transact(script)

    def _pass_on(self, signals: Signals) -> None:
        self.wakeups.pass_on(signals)
        if self._sender is not None:
            self._sender.send(signals)

    async def wait(self, queues: frozenset[str], at_most: timedelta, waiter: object | None) -> Wake:
        """See ``JobStore.wait_for_work``."""
        return await self._watcher.wait(queues, at_most, waiter)

    def all_wakeups(self) -> WakeUps:
        """See ``Database.all_wakeups``."""
        return self.wakeups

    def send(self, topics: Sequence[str]) -> None:
        """See ``Database.send``."""
        if self._sender is not None and not self._closed:
            if self._hints is None:
                # The other sender is used by the writer's thread.
                self._hints = WakeSender(self.path)
            self._hints.send([(topic, UNNUMBERED) for topic in topics])

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
        return name, await connection.data_version()

    async def close(self) -> None:
        """Let calls in flight finish and close both connections. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        self._watcher.close()
        if self._hints is not None:
            self._hints.close()
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
