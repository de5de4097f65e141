"""The bundle of the four views of one store."""

import copy
import inspect
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

from msgspec import Struct

from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.storage.protocols.config import ConfigStore
from forge_jobs.storage.protocols.cron import CronStore
from forge_jobs.storage.protocols.jobs import JobStore
from forge_jobs.storage.protocols.procs import ProcStore


class StoreHealth(Struct, frozen=True, kw_only=True):
    """The state of a bundle's connections, read without asking the store.

    :param wakes: wake-ups of other processes arrive at once. False: polling finds them, because
        listening was not asked for, is not possible, or has just been interrupted
    :param silences: how often listening was found interrupted, since the bundle was opened
    :param unreplicated: writes that fewer replicas confirmed in time than were asked for
    :param silent: queues whose part of the store did not answer the last call that asked several
        parts. "" stands for pods, the leader, schedules and rate limits
    :param unreadable: queues of which some part was found unreadable at the last use, and what to
        do. "" as above. Queues that cannot be worked at all are among ``silent`` too
    :param layout: how far the store is on the way to the newest layout, in a line, and what helps.
        "" when the store has the newest layout
    :param pool_size: connections that calls of this bundle may use at once. 0 where calls need not
        wait for a connection
    :param pool_in_use: of these, in use now
    :param pool_waits: calls that had to wait for a connection, since the bundle was opened
    :param problem: why the store must not be used any more, and what to do. "" when the store is
        fine
    """

    wakes: bool = True
    silences: int = 0
    unreplicated: int = 0
    silent: frozenset[str] = frozenset()
    unreadable: Mapping[str, str] = {}
    layout: str = ""
    problem: str = ""
    pool_size: int = 0
    pool_in_use: int = 0
    pool_waits: int = 0


class OpenTransactions(Struct, frozen=True, kw_only=True):
    """Open transactions, of any program, that keep a store from removing obsolete rows.

    :param oldest: how long the oldest such transaction has been open. Zero when none is open
    :param hidden: how many more are open whose age this role may not see
    """

    oldest: timedelta = timedelta(0)
    hidden: int = 0


class StoreReport(Struct, frozen=True, kw_only=True):
    """The report of a store on itself. None: there is no such thing, or this user may not ask.

    :param size_bytes: tables and indexes, or the file, or the data in the memory of the servers
    :param wal_bytes: the write-ahead log
    :param dead_rows: rows that are obsolete and still there
    :param oldest_transaction: how long the oldest transaction has been open that keeps such rows
    :param memory_bytes: that the servers use
    :param memory_bound: bytes that they may use. None also where there is no bound
    :param disk_free: bytes free on the disk of the store
    :param replicas: that follow the servers now
    :param schema_version: the newest migration that is applied
    """

    size_bytes: int | None = None
    wal_bytes: int | None = None
    dead_rows: int | None = None
    oldest_transaction: timedelta | None = None
    memory_bytes: int | None = None
    memory_bound: int | None = None
    disk_free: int | None = None
    replicas: int | None = None
    schema_version: int | None = None


async def _no_report() -> StoreReport:
    return StoreReport()


async def _nothing_lacks() -> str:
    return ""


def check_storage(value: object) -> "Storage":
    """Return ``value`` when it is an open storage.

    :raises InvalidInput: the text says what was given instead, and what to give
    """
    if isinstance(value, Storage):
        return value
    problem, fix = f"is {a_type(value)}", "give what `await open_storage(url)` returns"
    if inspect.iscoroutine(value):
        value.close()
        problem, fix = "is a coroutine that was not awaited", "write `await open_storage(url)`"
    raise InvalidInput("storage", problem, fix)


class Storage:
    """The four views of one store.

    :param reopen: opens an independent bundle on the same store, for another event loop
    :param close: ends the bundle. Calls in flight finish first
    :param name: the backend, and the part of the address that may be shown, without credentials
    :param server: product and version of the server, '' if the server may not be asked
    :param durability: one line for people: which failures a commit survives, and which not
    :param is_durable: a commit survives a loss of power, if the disk does what it reports. Claims,
        beats and grants need not survive where every pod loses power too: they then are as before
    :param health: reads the state of the connections, callable from any thread
    :param open_transactions: asks the store what is open now. None: the store cannot tell
    :param unreadable: asks the store which queues have unreadable parts, and what to do. "" stands
        for pods, the leader, schedules and rate limits. None: only single records can be
        unreadable, and each record says so
    :param lacking: asks which rights this user lacks of those that pods and callers need, and says
        what gives them. "" when none is lacking, and where the opening has looked
    :param report: asks the store about itself. A part that this user may not ask for is None, never
        an error. Raises ``Unavailable`` when the store is silent
    :param is_parted: queues may lie on different servers. Calls for the queues of one server go on
        while another is down, and a call for both does not
    :param pool_size: how many calls can be under way at once while others wait. None: no limit
    :raises InvalidInput: the views belong to different stores
    """

    def __init__(
        self,
        jobs: JobStore,
        procs: ProcStore,
        config: ConfigStore,
        cron: CronStore,
        *,
        reopen: Callable[[], Awaitable["Storage"]],
        close: Callable[[], Awaitable[None]],
        name: str,
        server: str = "",
        durability: str = "",
        is_durable: bool = True,
        health: Callable[[], StoreHealth] = StoreHealth,
        open_transactions: Callable[[], Awaitable[OpenTransactions]] | None = None,
        unreadable: Callable[[], Awaitable[Mapping[str, str]]] | None = None,
        lacking: Callable[[], Awaitable[str]] = _nothing_lacks,
        report: Callable[[], Awaitable[StoreReport]] = _no_report,
        pool_size: int | None = None,
        is_parted: bool = False,
    ) -> None:
        if len({view.store_id for view in (jobs, procs, config, cron)}) != 1:
            raise InvalidInput(
                "storage",
                "bundles views of different stores",
                "open all four with one open_storage(url)",
            )
        self.jobs = jobs
        self.procs = procs
        self.config = config
        self.cron = cron
        self.name = name
        self.server = server
        self.durability = durability
        self.is_durable = is_durable
        self.health = health
        self.open_transactions = open_transactions
        self.unreadable = unreadable
        self.lacking = lacking
        self.report = report
        self.pool_size = pool_size
        self.is_parted = is_parted
        self._reopen = reopen
        self._close = close

    async def reopen(self) -> "Storage":
        """Open an independent bundle on the same store, for use in another event loop."""
        return await self._reopen()

    def wrapped(
        self,
        around: Callable[[Any], Any],
        *,
        reopen: Callable[[], Awaitable["Storage"]] | None = None,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> "Storage":
        """Return a bundle on the same connections, with other views and all else as here.

        :param around: called with each view. Returns the view to use instead
        :param reopen: None: as this bundle does, without what was wrapped around
        :param close: None: as this bundle does
        """
        found = copy.copy(self)
        found.jobs, found.procs = around(self.jobs), around(self.procs)
        found.config, found.cron = around(self.config), around(self.cron)
        found._reopen = reopen or self.reopen
        found._close = close or self.aclose
        return found

    async def aclose(self) -> None:
        """Close every connection. Closing twice is fine."""
        await self._close()

    async def __aenter__(self) -> "Storage":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"Storage({self.name})"
