"""``forge-jobs watch``: progress and lines while they come, and the end as the exit code."""

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import anyio
import msgspec
import pytest

from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.outcomes import Dead
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.retries import Fixed
from forge_jobs.storage.opening import open_storage
from tests.cli.conftest import CommandLine
from tests.support import backends
from tests.support.factories import KIND, enqueue_one, get_job
from tests.support.proxy import proxy
from tests.support.runtimes import a_runtime, ended
from tests.support.terminals import Program, in_pipe, in_terminal

Place = Callable[..., AbstractContextManager[Program]]
HOSTILE = "\x1b]0;owned\x07 [bold]not bold[/bold]"


async def _ended_jobs(url: str) -> dict[str, str]:
    """Jobs that were retried, died and were cancelled: what each did -> id."""
    handlers = HandlerRegistry()

    @handlers.job("retried", max_attempts=2, retry=Fixed(0.01))
    async def retried(ctx: JobContext) -> None:
        ctx.log.warning("attempt %d of %s", ctx.attempt, HOSTILE)
        if ctx.attempt == 1:
            raise ValueError("not yet")

    @handlers.job("dies")
    async def dies() -> None:
        raise Dead(f"no such\n{HOSTILE}")

    async with (
        await open_storage(url) as storage,
        a_runtime(storage, handlers).start() as handle,
    ):
        later = retried.request().options(delay=3_600)
        ids = {
            "retried": (await handle.enqueue(retried.request())).job_id,
            "dies": (await handle.enqueue(dies.request())).job_id,
            "cancelled": (await handle.enqueue(later)).job_id,
        }
        await handle.cancel(ids["cancelled"])
        for job_id in ids.values():
            await ended(storage, job_id)
    return dict(ids)


@pytest.mark.parametrize("backend", ["sqlite", "postgres", "redis"])
def test_the_exit_code_is_the_outcome(backend: str, tmp_path: Path) -> None:
    url = anyio.run(backends.url_of, backend, tmp_path)
    forge = CommandLine(url)
    forge("migrate", "up")
    ids = anyio.run(_ended_jobs, url)

    told = forge("watch", ids["retried"]).stdout
    assert "WARNING attempt 2 of" in told
    assert told.splitlines()[-1] == "retried in default: done, attempt 2"
    assert "\x1b" not in told
    told = forge("watch", ids["dies"], code=3).stdout
    assert "dead, attempt 1 of" in told
    assert "no such " in told
    assert "\x1b" not in told
    assert "cancelled" in forge("watch", ids["cancelled"], code=4).stdout
    lines = forge("watch", ids["retried"], "--json").stdout.splitlines()
    documents = [msgspec.json.decode(line) for line in lines]
    assert [each["type"] for each in documents] == ["line", "outcome"]
    assert (documents[-1]["status"], documents[-1]["exit_code"]) == ("done", 0)
    forge("jobs", "delete", ids["dies"])
    assert "no job has the id" in forge.refuse("watch", ids["dies"], code=1)
    anyio.run(backends.forget, backend, tmp_path)


@pytest.mark.daily("in_terminal")
@pytest.mark.anyio
@pytest.mark.parametrize("place", [in_terminal, in_pipe])
async def test_what_goes_on_is_shown_while_it_goes_on(place: Place, forge: CommandLine) -> None:
    handlers, gate, again = HandlerRegistry(), anyio.Event(), anyio.Event()

    @handlers.job("pages", max_attempts=2, retry=Fixed(0.01))
    async def pages(ctx: JobContext) -> None:
        if ctx.attempt == 1:
            ctx.progress.set(31, 50, f"[i]pages[/i] {HOSTILE}")
            ctx.log.info("began %s", HOSTILE)
            await gate.wait()
            raise ValueError("a [red]leaf[/red] is missing")
        ctx.log.info("once more")
        await again.wait()

    async with (
        await open_storage(forge.url) as storage,
        a_runtime(storage, handlers).start() as handle,
    ):
        job_id = (await handle.enqueue(pages.request())).job_id
        with place("watch", job_id, FORGE_STORAGE_URL=forge.url) as program:
            await program.shows("INFO began")
            await program.shows("[i]pages[/i]")
            gate.set()
            text = await program.shows("INFO once more")
            again.set()
            assert await program.ends() == 0
            assert "pages in default: done, attempt 2" in program.text
            assert "[bold]not bold[/bold]" in text
            assert "\x1b]0" not in program.raw
            assert "\x07" not in program.raw


@pytest.mark.daily("2-in_terminal")
@pytest.mark.anyio
@pytest.mark.parametrize("place", [in_terminal, in_pipe])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_the_watch_and_leaves_the_job_alone(
    place: Place, number: signal.Signals, forge: CommandLine
) -> None:
    async with await open_storage(forge.url) as storage:
        job_id = await enqueue_one(storage)
        with place("watch", job_id, FORGE_STORAGE_URL=forge.url) as program:
            await program.shows(f"{KIND} in default: pending")
            program.send(number)
            assert await program.ends() == 128 + number
            assert f"The job goes on: forge-jobs watch {job_id}" in program.text
            assert "Traceback" not in program.text
        assert (await get_job(storage, job_id)).status is JobStatus.PENDING


@pytest.mark.anyio
async def test_a_stop_gives_the_shell_the_cursor_and_the_watch_goes_on_behind_fg(
    forge: CommandLine,
) -> None:
    async with await open_storage(forge.url) as storage:
        job_id = await enqueue_one(storage)
        with in_terminal("watch", job_id, can_stop=True, FORGE_STORAGE_URL=forge.url) as program:
            await program.shows("pending")
            await program.stops()
            assert "\x1b[?25l" not in program.raw.rpartition("\x1b[?25h")[2]
            program.send(signal.SIGCONT)
            await storage.jobs.cancel(JobFilter(ids=(job_id,)))
            assert await program.ends() == 4
            assert f"{KIND} in default: cancelled" in program.text


@pytest.mark.anyio
@pytest.mark.parametrize("backend", ["sqlite", "postgres", "redis"])
async def test_a_job_that_is_removed_ends_the_watch(backend: str, tmp_path: Path) -> None:
    url = await backends.url_of(backend, tmp_path)
    async with await open_storage(url) as storage:
        job_id = await enqueue_one(storage)
        with in_pipe("watch", job_id, FORGE_STORAGE_URL=url) as program:
            await program.shows("pending")
            await storage.jobs.delete(JobFilter(ids=(job_id,)))
            assert await program.ends() == 1
            assert f"Error: job {job_id} was removed while it was watched" in program.text
            assert program.text.count("\n") == 2
    await backends.forget(backend, tmp_path)


@pytest.mark.long
@pytest.mark.anyio
async def test_an_outage_is_told_once_and_the_watch_goes_on(tmp_path: Path) -> None:
    url = await backends.url_of("redis", tmp_path)
    async with await open_storage(url) as storage:
        job_id = await enqueue_one(storage)
        with (
            proxy(url) as between,
            in_pipe("watch", job_id, FORGE_STORAGE_URL=between.url) as program,
        ):
            await program.shows("pending")
            between.refuse()
            await program.shows("cannot be read")
            await storage.jobs.cancel(JobFilter(ids=(job_id,)))
            between.heal()
            assert await program.ends() == 4
            assert program.text.count("cannot be read") == 1
            assert f"{KIND} in default: cancelled" in program.text
    await backends.forget("redis", tmp_path)
