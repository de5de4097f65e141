"""``jobs logs`` and the progress in ``jobs show``, on a store of each kind."""

from pathlib import Path

import anyio
import pytest

from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.storage.opening import open_storage
from tests.cli.conftest import CommandLine
from tests.support import backends
from tests.support.runtimes import a_runtime, ended


async def _ran(url: str) -> str:
    """Run a job that logs, and return the id."""
    handlers = HandlerRegistry()

    @handlers.job("talks")
    async def talks(ctx: JobContext) -> None:
        for number in range(1_003):
            ctx.log.info("line %d", number)
        ctx.progress.set(3, 4, "nearly")

    async with (
        await open_storage(url) as storage,
        a_runtime(storage, handlers).start() as handle,
    ):
        job_id = (await handle.enqueue(talks.request())).job_id
        await ended(storage, job_id)
    return job_id


@pytest.mark.parametrize("backend", ["sqlite", "postgres", "redis"])
def test_lines_and_progress_are_shown(backend: str, tmp_path: Path) -> None:
    url = anyio.run(backends.url_of, backend, tmp_path)
    forge = CommandLine(url)
    forge("migrate", "up")
    job_id = anyio.run(_ran, url)
    for options in ((), ("--follow",), ("--attempt", "1")):
        first, second, *_, last = forge("jobs", "logs", job_id, *options).stdout.splitlines()
        assert first == "... 3 lines are not kept ..."
        assert second.endswith("INFO line 3")
        assert last.endswith("INFO line 1002")
    page = forge.json("jobs", "logs", job_id)
    assert (page["attempt"], len(page["lines"])) == (1, 1_000)
    assert forge.json("jobs", "show", job_id)["progress"]["current"] == 3
    assert "3 of 4 nearly" in forge("jobs", "show", job_id).stdout
    anyio.run(backends.forget, backend, tmp_path)
