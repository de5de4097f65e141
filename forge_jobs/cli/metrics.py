"""``/metrics`` of a worker: what its store has counted, so each process answers for all."""

import asyncio

from forge_jobs.errors import ForgeJobsError
from forge_jobs.operating.metrics.reading import Scraper
from forge_jobs.operating.snapshots.shared import Reader
from forge_jobs.storage.protocols import Storage


class Metrics:
    """Answers scrapes once the store is open."""

    def __init__(self) -> None:
        self._scraper: Scraper | None = None

    def open(self, storage: Storage) -> None:
        """Read this store from now on."""
        self._scraper = Scraper(Reader(storage))

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
        except ForgeJobsError:
            return 503, "the store does not answer\n"
        text = await asyncio.to_thread(exposition, scrape)
        return 200, text.decode()
