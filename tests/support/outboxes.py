"""Outboxes between two stores, and processes that relay them."""

import logging
import multiprocessing
import os
import sys
import threading
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import anyio
from msgspec import Struct

from forge_jobs import EnqueueRequest, HandlerRegistry, Outbox, Storage, open_storage
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.storage.protocols.letters import HasOutbox
from forge_jobs.storage.sql.letters.outbox import SqlOutbox
from tests.support.backends import forget, lent, url_of
from tests.support.factories import new_job
from tests.support.points import die_at

PAIRS = [("postgres", "redis"), ("sqlite", "redis"), ("postgres", "sqlite")]
"""The database with the outbox, and the store with the queues."""

forkserver = multiprocessing.get_context("forkserver")


class Pair(Struct):
    """Two stores."""

    backend: str
    folder: Path
    here: Storage
    there: Storage
    here_url: str
    there_url: str

    def outbox(self, handlers: HandlerRegistry | None = None, **options: object) -> Outbox:
        return Outbox(self.here, self.there, handlers, **options)  # type: ignore[arg-type]

    async def write(
        self, requests: Sequence[EnqueueRequest], outbox: Outbox | None = None, commits: bool = True
    ) -> list[JobId]:
        """Enqueue in one transaction."""
        async with lent(self.backend, self.folder, commits=commits) as connection:
            outcomes = await (outbox or self.outbox()).enqueue_many(connection, requests)
        return [each.job_id for each in outcomes]

    async def stored(self) -> list[JobId]:
        """The jobs of the destination, in the order in which they are due."""
        page = await self.there.jobs.list(JobFilter(), limit=1_000)
        return sorted(each.id for each in page.jobs)


async def write_down(storage: Storage, name: str, count: int, problem: str = "") -> list[JobId]:
    """Write records into a database, without a caller's transaction.

    :param problem: set the first one aside for this reason
    """
    assert isinstance(storage.jobs, HasOutbox)
    records = storage.jobs.outbox(name)
    assert isinstance(records, SqlOutbox)
    jobs = [new_job(kind="mail.send", queue="mail") for _ in range(count)]
    await records._database.write(lambda tx: records._write(tx, jobs))
    if problem:
        [first, *_] = await records.records(1)
        await records.set_aside(first.number, problem)
    return [job.id for job in jobs]


@asynccontextmanager
async def pair_of(here: str, there: str, folder: Path) -> AsyncGenerator[Pair]:
    """Two empty stores."""
    folders = folder / "here", folder / "there"
    for each in folders:
        each.mkdir()
    urls = [await url_of(name, at) for name, at in zip((here, there), folders, strict=True)]
    async with await open_storage(urls[0]) as first, await open_storage(urls[1]) as second:
        yield Pair(here, folders[0], first, second, *urls)
    for name, at in zip((here, there), folders, strict=True):
        await forget(name, at)


def _relay(here_url: str, there_url: str, point: str, visit: int, marker: str, log: str) -> None:
    threading.Thread(target=_end_with_the_test, daemon=True).start()
    out = os.open(log, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    die_at(point, visit, Path(marker))
    anyio.run(_run, here_url, there_url)


def _end_with_the_test() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


async def _run(here_url: str, there_url: str) -> None:
    async with await open_storage(here_url) as here, await open_storage(there_url) as there:
        await Outbox(here, there).run()


@contextmanager
def relays(
    pair: Pair, count: int, point: str, visit: int, folder: Path
) -> Generator[list[ForkServerProcess]]:
    """Processes that relay, of which one dies at a point."""
    marker, log = str(folder / "died"), str(folder / "relays.log")
    started = []
    try:
        for _ in range(count):
            args = (pair.here_url, pair.there_url, point, visit, marker, log)
            process = forkserver.Process(target=_relay, args=args)
            process.start()
            started.append(process)
        yield started
    finally:
        for process in started:
            process.kill()
            process.join()
