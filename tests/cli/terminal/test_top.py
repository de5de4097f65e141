"""``forge-jobs top``: the screen in a terminal, plain lines elsewhere."""

import signal
from pathlib import Path

import anyio
import pytest

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.queues import QueueChange
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.cli.conftest import CommandLine
from tests.support import backends
from tests.support.factories import (
    DAY,
    claim_one,
    dead,
    enqueue_one,
    error,
    finish,
    get_job,
    held,
    register,
)
from tests.support.proxy import proxy
from tests.support.terminals import in_pipe, in_terminal
from tests.support.waiting import wait_until

HOSTILE = "\x1b]0;owned\x07[bold]x[/bold]"


async def furnish(storage: Storage) -> JobId:
    """Two queues, a job in work and a dead one. Returns the id of the job in work."""
    for queue in ("mail", "crops"):
        await storage.config.set_queue(queue, QueueChange(max_workers=2))
    lease = await register(
        storage, queues=("mail", "crops"), kinds=("mail.send", "image.crop"), lease_for=DAY
    )
    await enqueue_one(storage, queue="mail", kind="mail.send", max_attempts=1)
    claimed = await claim_one(storage, lease, queue="mail", kinds=("mail.send",))
    await finish(storage, claimed, dead(error=error(f"no such host {HOSTILE}")))
    running = await enqueue_one(storage, queue="crops", kind="image.crop")
    claimed = await claim_one(storage, lease, queue="crops", kinds=("image.crop",))
    # Jobs in work are there for as long as the slowest machine needs.
    await storage.jobs.heartbeat(lease, [held(claimed, "worker-1")], DAY)
    return running


@pytest.mark.parametrize("backend", ["sqlite", "postgres", "redis"])
def test_without_a_terminal_there_are_plain_lines(backend: str, tmp_path: Path) -> None:
    url = anyio.run(backends.url_of, backend, tmp_path)
    forge = CommandLine(url)
    forge("migrate", "up")

    async def fill() -> JobId:
        async with await open_storage(url) as storage:
            return await furnish(storage)

    running = anyio.run(fill)
    forge("limits", "set-concurrency", "mail", "hosts", "2")
    for options in ((), ("--once",)):
        told = forge("top", *options).stdout
        assert told.startswith(f"forge-jobs  {backend}")
        assert "\x1b" not in told
        for words in (
            "QUEUE",
            "mail",
            "crops",
            "POD",
            "LIMIT",
            "hosts",
            "JOB",
            running,
            "image.crop",
        ):
            assert words in told
    document = forge.json("top")
    assert [each["name"] for each in document["board"]["queues"]] == ["crops", "mail"]
    assert document["board"]["runs"][0]["job_id"] == running
    assert document["board"]["queues"][1]["dead"] == 1
    [hosts] = document["limits"]
    assert (hosts["name"], hosts["at_most"], hosts["running"], hosts["full_keys"]) == (
        "hosts",
        2,
        0,
        [],
    )
    assert "every" in forge.refuse("top", "--every", "0.5s")
    anyio.run(backends.forget, backend, tmp_path)


@pytest.mark.anyio
async def test_keys_go_about_and_capitals_act_after_a_yes(  # noqa: PLR0915 - one session
    forge: CommandLine,
) -> None:
    async with await open_storage(forge.url) as storage:
        running = await furnish(storage)
        with in_terminal("top", "--every", "1s", FORGE_STORAGE_URL=forge.url) as top:
            screen = await top.frame_shows(running)
            assert "STANDING" in screen
            assert "\x1b]0" not in top.raw

            top.press("?")
            await top.frame_shows("requeue all dead jobs of the queue")
            top.press("q")
            await top.frame_shows("STANDING")

            top.press("/mai\r")
            screen = await top.frame_shows("filter: mai")
            assert "1/0/2" not in screen
            top.press("P")
            await top.frame_shows("Pause queue mail? y/n")
            top.press("n")
            await top.frame_shows("Left as it was.")
            top.press("P")
            await top.frame_shows("Pause queue mail? y/n")
            top.press("y")
            await top.frame_shows("paused")
            [mail] = [each for each in await storage.config.queues() if each.name == "mail"]
            assert mail.paused

            top.press("R")
            await top.frame_shows("Requeue 1 dead jobs of queue mail? y/n")
            top.press("y")
            await top.frame_shows("1 jobs of queue mail are requeued.")

            top.press("/\x1b")
            await top.frame_shows("1/0/2")
            top.press("\t\r")
            await top.frame_shows("image.crop in crops: in_progress")
            top.press("C")
            await top.frame_shows(f"Cancel job {running}? y/n")
            top.press("y")
            await top.frame_shows("Asked to stop.")
            top.press("\r")
            await top.frame_shows("asked to stop")
            top.press("q")
            assert await top.ends() == 0
            assert "\x1b[?25h" in top.raw[-40:]  # the cursor is back
        assert (await get_job(storage, running)).status is JobStatus.IN_PROGRESS


@pytest.mark.daily("2-0")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGQUIT, 131)]
)
async def test_a_signal_puts_the_terminal_back_in_order(
    number: signal.Signals, code: int, forge: CommandLine
) -> None:
    with in_terminal("top", FORGE_STORAGE_URL=forge.url) as top:
        await top.frame_shows("Nothing is wrong.")
        before = top.echoes
        top.send(number)
        assert await top.ends() == code
        assert "\x1b[?1049l" in top.raw  # the other screen is left
        assert (before, top.echoes) == (False, True)
        assert "Traceback" not in top.text


@pytest.mark.anyio
async def test_keys_work_again_behind_a_stop_by_the_shell(forge: CommandLine) -> None:
    with in_terminal("top", FORGE_STORAGE_URL=forge.url) as top:
        await top.frame_shows("Nothing is wrong.")
        # As a shell does behind Ctrl-Z, for its own lines.
        top.let_lines_be_edited()
        assert top.echoes
        top.forget()
        top.send(signal.SIGCONT)
        await top.frame_shows("Nothing is wrong.")
        assert not top.echoes
        top.press("q")
        assert await top.ends() == 0


@pytest.mark.anyio
async def test_a_stop_leaves_the_screen_to_the_shell_and_fg_brings_the_screen_back(
    forge: CommandLine,
) -> None:
    with in_terminal("top", can_stop=True, FORGE_STORAGE_URL=forge.url) as top:
        for _ in range(2):
            await top.frame_shows("Nothing is wrong.")
            assert not top.echoes
            top.forget()
            await top.stops()
            assert "\x1b[?25h" in top.raw  # the cursor is back
            assert top.raw.endswith("\x1b[?1049l")  # the other screen is left
            assert top.echoes
            top.forget()
            top.send(signal.SIGCONT)
            await top.frame_shows("Nothing is wrong.")
            assert "\x1b[?1049h" in top.raw
            assert "\x1b[?25l" in top.raw
        top.press("q")
        assert await top.ends() == 0


@pytest.mark.anyio
async def test_a_stop_that_no_shell_could_end_is_none(forge: CommandLine) -> None:
    with in_terminal("top", FORGE_STORAGE_URL=forge.url) as top:
        await top.frame_shows("Nothing is wrong.")
        top.forget()
        top.send(signal.SIGTSTP)
        await top.frame_shows("Nothing is wrong.")
        top.press("q")
        assert await top.ends() == 0


@pytest.mark.anyio
async def test_a_terminal_that_cannot_place_text_gets_plain_lines(forge: CommandLine) -> None:
    with in_terminal("top", FORGE_STORAGE_URL=forge.url, TERM="dumb") as top:
        assert await top.ends() == 0
        assert "Nothing is wrong." in top.text
        assert "\x1b" not in top.raw


@pytest.mark.long
@pytest.mark.anyio
async def test_the_screen_follows_the_size_of_the_terminal(forge: CommandLine) -> None:
    async with await open_storage(forge.url) as storage:
        running = await furnish(storage)
    with in_terminal(
        "top", "--every", "1h", FORGE_STORAGE_URL=forge.url, rows=40, columns=160
    ) as top:
        await top.frame_shows(running)
        for rows, columns in ((12, 60), (4, 20), (2, 5), (50, 200)):
            top.forget()
            top.resize(rows, columns)

            def fits(rows: int = rows, columns: int = columns) -> bool:
                lines = [line.rstrip("\r") for line in top.frame.split("\n")]
                return (
                    "\x1b[H" in top.raw and len(lines) == rows and max(map(len, lines)) <= columns
                )

            await wait_until(fits, description=f"{rows} lines of {columns} are drawn")
        await top.frame_shows(running)


@pytest.mark.long
@pytest.mark.anyio
async def test_while_the_store_is_away_the_screen_says_so_and_goes_on(tmp_path: Path) -> None:
    url = await backends.url_of("redis", tmp_path)
    async with await open_storage(url) as storage:
        running = await furnish(storage)
    with (
        proxy(url) as between,
        in_terminal("top", "--every", "1s", FORGE_STORAGE_URL=between.url) as top,
    ):
        await top.frame_shows(running)
        between.refuse()
        screen = await top.frame_shows("The store does not answer")
        assert running in screen
        between.heal()
        await wait_until(
            lambda: "does not answer" not in top.frame and running in top.frame,
            description="the screen goes on",
        )
        top.press("q")
        assert await top.ends() == 0
    await backends.forget("redis", tmp_path)


@pytest.mark.long
@pytest.mark.anyio
async def test_a_thousand_queues_fit_on_the_screen_and_the_chosen_line_stays(
    forge: CommandLine,
) -> None:
    async with await open_storage(forge.url) as storage:
        for number in range(1_000):
            await storage.config.set_queue(f"queue-{number:03}", QueueChange(max_workers=1))
    with in_terminal("top", FORGE_STORAGE_URL=forge.url, rows=20) as top:
        await top.frame_shows("queue-000")
        top.press("j" * 1_010 + "P")
        await top.frame_shows("Pause queue queue-999? y/n")
        assert "queue-999  " in top.frame


@pytest.mark.long
def test_a_closed_pipe_is_no_traceback(forge: CommandLine) -> None:
    with in_pipe("top", FORGE_STORAGE_URL=forge.url) as top:
        assert anyio.run(top.ends) == 0
        assert "Nothing is wrong." in top.text
