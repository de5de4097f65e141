"""huey 3.5, https://huey.readthedocs.io, on SQLite: threads that poll.

A task is taken out of the file before the run, so a crash loses running tasks: nothing here
acknowledges after the run.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from bench.peers.running import functions
from bench.side import Side, Work


class Huey(Side):
    """The defaults: WAL, and commits synced as SQLite itself does, which is fully."""

    name = "huey"
    store = "sqlite"
    requirements = ("huey==3.5.4",)
    settings = {
        "workers": "the workers, threads; docs/consumer.rst, Worker types",
        "fsync": "not given: the library's default, which docs/api.rst, SqliteHuey, takes for "
        "normal and which is full in Python's build",
        "initial_delay": "10 ms rather than 100, the first pause of a thread that found nothing; "
        "docs/consumer.rst, Options for the consumer, --delay",
        "backoff, max_delay": "1.15, 10 s, the defaults",
        "results": "a no-op returns None, which is not stored; docs/api.rst, Huey, store_none",
    }
    jobs = 8_000
    threads = True
    uvloop = False
    acknowledges_after = False

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        from huey import SqliteHuey

        path = urlsplit(work.url).path.removeprefix("/")
        self._huey: Any = SqliteHuey(filename=path, **self._storage_options())
        noop, stamp = functions(self.tally)
        self._noop: Any = self._huey.task(name="noop")(noop)
        self._stamp: Any = self._huey.task(name="stamp")(stamp)

    def _storage_options(self) -> dict[str, object]:
        return {}

    async def open(self) -> None:
        """Do nothing: each thread opens the file with its first call."""

    async def close(self) -> None:
        self._huey.storage.close()

    async def prepare(self) -> None:
        """The tables are made when the file is opened."""

    async def enqueue(self, number: int) -> None:
        self._noop(number)

    async def enqueue_stamped(self, sent: float) -> None:
        self._stamp(sent)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        consumer = self._huey.create_consumer(workers=self.work.workers, initial_delay=0.01)
        consumer.start()
        try:
            yield
        finally:
            await asyncio.to_thread(consumer.stop, graceful=True)

    async def is_drained(self, target: int) -> bool:
        # The file has no record of tasks that have run: only the handlers know.
        mine = self.tally.executed >= self.work.jobs or self.work.processes > 1
        return mine and int(self._huey.pending_count()) == 0


class HueyUnsafe(Huey):
    """Commits that a loss of power undoes."""

    name = "huey-unsafe"
    settings = Huey.settings | {"fsync": "False: synchronous=off; docs/api.rst, SqliteStorage"}

    def _storage_options(self) -> dict[str, object]:
        return {"fsync": False}
