"""The bundle of the four views of one store."""

from collections.abc import Awaitable, Callable

from forge_jobs.errors import InvalidInput
from forge_jobs.storage.protocols.config import ConfigStore
from forge_jobs.storage.protocols.cron import CronStore
from forge_jobs.storage.protocols.jobs import JobStore
from forge_jobs.storage.protocols.procs import ProcStore


class Storage:
    """The four views of one store.

    :param reopen: opens an independent bundle on the same store, for another event loop
    :param close: ends the bundle; calls in flight finish first
    :param name: the backend and what of its address may be shown, without credentials
    :param durability: one line for people: what a commit survives, and what it does not
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
        durability: str = "",
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
        self.durability = durability
        self._reopen = reopen
        self._close = close

    async def reopen(self) -> "Storage":
        """An independent bundle on the same store, for use in another event loop."""
        return await self._reopen()

    async def aclose(self) -> None:
        """Close every connection. Closing twice is fine."""
        await self._close()

    async def __aenter__(self) -> "Storage":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"Storage({self.name})"
