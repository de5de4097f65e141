"""Migrations that no release has, for tests, and processes that apply them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from forge_jobs.storage.opening import open_migrator
from forge_jobs.storage.sql.migrations import runner
from forge_jobs.storage.sql.migrations.files import Migration, known_migrations
from tests.support.pods import forkserver
from tests.support.points import die_at

NEWEST = known_migrations("sqlite")[-1].version
NEXT = NEWEST + 1

TABLE = f"-- works-from: {NEWEST}\nCREATE TABLE forge_more (id INTEGER);\n"
INDEX = "CREATE INDEX CONCURRENTLY forge_more ON forge_jobs (kind, enqueued_at);\n"
STEPS = (
    f"-- works-from: {NEWEST}\n\n"
    "ALTER TABLE forge_jobs ADD COLUMN IF NOT EXISTS more TEXT;\n\n"
    "CREATE INDEX CONCURRENTLY forge_more ON forge_jobs (more);\n\n"
    "CREATE INDEX CONCURRENTLY forge_more_kinds ON forge_jobs (kind, more);\n\n"
    "ALTER TABLE forge_jobs ADD CONSTRAINT forge_more_short CHECK (length(more) < 9) NOT VALID;\n\n"
    "ALTER TABLE forge_queues ADD COLUMN more TEXT;\n"
)
"""A migration of several transactions, on Postgres."""


@contextmanager
def with_migrations(*texts: str, down: str | None = None) -> Iterator[None]:
    """This program is one that has these migrations as well."""
    added = [Migration(NEXT + n, f"more{n}", each, down) for n, each in enumerate(texts)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            runner, "known_migrations", lambda flavor: (*known_migrations(flavor), *added)
        )
        yield


def _up(url: str, texts: Sequence[str], death: tuple[int, str] | None) -> None:
    if death is not None:
        die_at("migrate:step", death[0], Path(death[1]))
    with with_migrations(*texts):
        anyio.run(open_migrator(url).up)


async def up_in_processes(
    url: str, *texts: str, count: int = 1, death: tuple[int, str] | None = None
) -> list[int | None]:
    """Bring the schema up to date in so many processes at once, and return their exit codes.

    :param death: the visit of the stop point at which one of them dies, and the marker
    """
    processes = [forkserver.Process(target=_up, args=(url, texts, death)) for _ in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        await anyio.to_thread.run_sync(partial(process.join, 60))
    return [process.exitcode for process in processes]
