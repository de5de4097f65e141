"""``/metrics`` of a worker: what its store has counted, so each process answers for all."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from msgspec import structs

from forge_jobs.errors import ForgeJobsError
from forge_jobs.model.letters.outbox import OutboxState
from forge_jobs.operating.metrics.reading import Scraper
from forge_jobs.operating.snapshots.shared import Reader
from forge_jobs.storage.protocols import Storage

ReadOutboxes = Callable[[], Awaitable[Mapping[str, OutboxState]]]

_PATIENCE = 2.0
"""Seconds that a scrape waits for the database of an outbox."""


class Metrics:
    """Answers scrapes once the store is open."""

    def __init__(self) -> None:
        self._scraper: Scraper | None = None
        self._outboxes: ReadOutboxes | None = None

    def open(self, storage: Storage) -> None:
        """Read this store from now on."""
        self._scraper = Scraper(Reader(storage))

    def watch(self, outboxes: ReadOutboxes) -> None:
        """Tell of outboxes too, which may be away."""
        self._outboxes = outboxes

    async def _read_outboxes(self) -> Mapping[str, OutboxState]:
        if self._outboxes is None:
            return {}
        reading = asyncio.ensure_future(self._outboxes())
        # Another database than the store of the other figures, which are not to wait for this one.
        done, _ = await asyncio.wait({reading}, timeout=_PATIENCE)
        if not done:
            reading.add_done_callback(lambda late: late.cancelled() or late.exception())
            return {}
        try:
            return reading.result()
        except ForgeJobsError:
            return {}

    async def text(self) -> tuple[int, str]:
        """Return status and text."""
        try:
            from forge_jobs.operating.metrics.exposition import exposition
        except ImportError as error:
            return 503, f"{error}\n"
        if self._scraper is None:
            return 503, "starting: the store is not ready\n"
        try:
            scrape = await self._scraper.read()
            scrape = structs.replace(scrape, outboxes=await self._read_outboxes())
        except ForgeJobsError:
            return 503, "the store does not answer\n"
        text = await asyncio.to_thread(exposition, scrape)
        return 200, text.decode()
