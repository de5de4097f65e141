"""Waits for work: wake-ups of all processes, and looks at the file for commits without a
wake-up."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Protocol, TypeVar

from forge_jobs.clock import SystemClock
from forge_jobs.errors import Unavailable
from forge_jobs.model.queues import Wake
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.sqlite.flavor import known_signals
from forge_jobs.storage.sql.sqlite.wake_sockets import WakeSocket
from forge_jobs.storage.wakeups import Inboxes, WakeUps, until_set

R = TypeVar("R")

_LOOK_EVERY_S = 0.025
"""Seconds between two looks at the file where other processes cannot wake this one: their commits
are seen within 50 ms."""

_WOKEN_LOOK_EVERY_S = 0.1
"""The same where other processes can. Programs of other users, or without forge_jobs, still
cannot."""

_elapsed = SystemClock().elapsed


class Watched(Protocol):
    """The database file as the file watcher needs it."""

    path: Path
    wakeups: WakeUps
    inboxes: Inboxes

    async def data_version(self) -> tuple[str, int]: ...

    async def read(self, script: Callable[[Tx], R]) -> R: ...


class FileWatcher:
    """``wait_for_work`` of one bundle, for all its waiters.

    A look costs one hop to a connection's thread and reads one number. Only when another connection
    has committed, so that the number has changed, are the signals read.

    :param shared: other processes may use the file
    """

    def __init__(self, database: Watched, *, shared: bool) -> None:
        self._database = database
        self._shared = shared
        self._socket: WakeSocket | None = None
        self._versions: dict[str, int] = {}
        self._look_at = float("-inf")
        self._look_every = _LOOK_EVERY_S

    async def wait(self, queues: frozenset[str], at_most: timedelta, waiter: object | None) -> Wake:
        """See ``JobStore.wait_for_work``."""
        if self._shared:
            # Before the first look, which finds earlier commits.
            self._shared = False
            self._socket = WakeSocket.open(self._database.path, self._database.wakeups.pass_on)
            if self._socket is not None:
                self._look_every = _WOKEN_LOOK_EVERY_S
        inbox = self._database.inboxes.of(waiter)
        event = inbox.listen(queues)
        try:
            end = _elapsed() + at_most.total_seconds()
            while not (wake := inbox.take(queues)):
                now = _elapsed()
                if now < min(end, self._look_at):
                    await until_set(event, min(end, self._look_at) - now)
                    event.clear()
                    continue
                # No more often, even for short waits: a woken waiter is about to use the writer's
                # thread, and commits of this process wake its waiters at once.
                await self._look()
                self._look_at = _elapsed() + self._look_every
                if now >= end:
                    return inbox.take(queues)
            return wake
        finally:
            inbox.unlisten(event)

    def close(self) -> None:
        """Stop receiving wake-ups of other processes."""
        self._shared = False
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def _look(self) -> None:
        try:
            connection, version = await self._database.data_version()
            if version != self._versions.get(connection):
                signals = await self._database.read(lambda tx: known_signals(tx.connection))
                self._database.wakeups.pass_on(signals)
                self._versions[connection] = version
        except Unavailable:
            # A wake-up is not worth an error: callers poll, and meet the outage themselves.
            return
