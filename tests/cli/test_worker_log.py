"""Log lines of ``forge-jobs worker`` as a real process."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
import pytest

from forge_jobs import EnqueueRequest, JobClient, open_storage
from tests.cli.conftest import CommandLine

pytestmark = pytest.mark.processes

_HANDLERS = """
import logging
from pathlib import Path
from forge_jobs import HandlerRegistry, JobContext

handlers = HandlerRegistry()

@handlers.job("mail.receipt")
async def receipt(ctx: JobContext, order: int) -> None:
    ctx.log.info("receipt of order %d goes out", order)

@handlers.job("mail.lost", max_attempts=1)
async def lost() -> None:
    raise ValueError("no such mailbox \\udcff")

@handlers.job("mail.long")
async def long(ctx: JobContext, path: str) -> None:
    for _ in range(300):
        ctx.log.info("x" * 1000)
    Path(path).write_text("done")

@handlers.job("mail.odd", max_attempts=1)
async def odd(ctx: JobContext, text: str) -> None:
    ctx.log.warning("got %s", text)
    logging.getLogger("shop").warning("\\x1b[31mred\\x1b[0m")
    raise ValueError(text)

@handlers.job("debug")
async def debug() -> None:
    logging.getLogger("shop").debug("a line of the program")
"""

Work = Callable[..., str]


@pytest.fixture
def work(forge: CommandLine, tmp_path: Path) -> Work:
    """Return a function that works off the queue ``mail`` and returns the worker's output."""
    (tmp_path / "cli_log_handlers.py").write_text(_HANDLERS)
    environ = {name: text for name, text in os.environ.items() if not name.startswith("FORGE_")}

    def run(**variables: str) -> str:
        ours = {"FORGE_STORAGE_URL": forge.url, "PYTHONPATH": str(Path.cwd())}
        command = "worker cli_log_handlers:handlers --queues mail=2,other --until-empty"
        done = subprocess.run(
            [sys.executable, "-m", "forge_jobs", *command.split()],
            cwd=tmp_path,
            env=environ | ours | variables,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == ""
        return done.stderr

    return run


@pytest.fixture
def receipt(forge: CommandLine) -> Callable[[int], str]:
    """Return a function that enqueues a job and returns the id."""

    def enqueue(order: int) -> str:
        payload = f'{{"order": {order}}}'
        return forge(
            "enqueue", "mail.receipt", "--queue", "mail", "--payload", payload
        ).stdout.strip()

    return enqueue


@pytest.mark.daily
def test_the_start_the_jobs_and_their_own_lines_are_told(
    forge: CommandLine, work: Work, receipt: Callable[[int], str]
) -> None:
    forge("queues", "set", "other", "--max-workers", "7")
    job_id = receipt(7)

    said = work(FORGE_WORKER_ID="a")

    assert re.search(r"pod worker-a \(\w{26}\) on sqlite jobs\.db", said)
    assert "serves mail (2 at a time in the cluster), other (7 at a time in the cluster) " in said
    assert "with 5 kinds: debug, mail.long, mail.lost, mail.odd, mail.receipt\n" in said
    assert f"receipt of order 7 goes out [mail.receipt, job {job_id}, attempt 1]\n" in said
    assert re.search(rf"INFO .*: mail.receipt done after .* \(job {job_id}, attempt 1 of 5\)", said)


def test_job_lines_can_be_turned_off_and_failures_are_told_all_the_same(
    forge: CommandLine, work: Work, receipt: Callable[[int], str]
) -> None:
    receipt(7)
    forge("enqueue", "mail.lost", "--queue", "mail", "--max-attempts", "1")

    said = work(FORGE_LOG_JOBS="0")

    assert "mail.receipt done" not in said
    assert (
        "ERROR forge_jobs.runtime.queue.job_log: mail.lost failed with ValueError, now dead: "
        in said
    )
    assert "Traceback (most recent call last):\n" in said
    assert "\n  ValueError: no such mailbox" in said


def test_beyond_twenty_a_second_there_are_counts(
    forge: CommandLine, work: Work, receipt: Callable[[int], str]
) -> None:
    lines = 60
    anyio.run(enqueue_receipts, forge.url, lines)

    said = work()

    shown = said.count(" mail.receipt done after ")
    counted = [int(n) for n in re.findall(r"jobs ended in .* s: mail.receipt done (\d+)", said)]
    assert shown + sum(counted) == lines
    assert shown < lines


async def enqueue_receipts(url: str, count: int) -> None:
    async with await open_storage(url) as storage, JobClient(storage) as client:
        await client.enqueue_many(
            EnqueueRequest("mail.receipt", {"order": n}, queue="mail") for n in range(count)
        )


def test_debug_shows_the_lines_of_the_program_and_none_of_the_driver(
    forge: CommandLine, work: Work
) -> None:
    forge("enqueue", "debug", "--queue", "mail")

    said = work(FORGE_LOG="DEBUG")

    assert "DEBUG shop: a line of the program" in said
    assert not re.search(r" (aiosqlite|asyncio|sqlalchemy)[.:]", said)


def test_a_json_line_holds_the_failure_whatever_its_text_is(forge: CommandLine, work: Work) -> None:
    forge("enqueue", "mail.lost", "--queue", "mail", "--max-attempts", "1")

    said = work(FORGE_LOG_FORMAT="json")

    entries = [msgspec.json.decode(line) for line in said.splitlines()]
    [failure] = [each for each in entries if each["level"] == "ERROR"]
    assert (failure["kind"], failure["error_type"]) == ("mail.lost", "ValueError")
    assert "in lost" in failure["traceback"]


def test_what_a_job_brings_does_not_steer_a_terminal(forge: CommandLine, work: Work) -> None:
    payload = r'{"text": "a\u001b]0;x\u0007b\u009b2Jc\u202ed\ne\tf"}'
    options = ("--queue", "mail", "--max-attempts", "1", "--payload", payload)
    forge("enqueue", "mail.odd", *options)

    said = work()

    escaped = r"a\x1b]0;x\x07b\x9b2Jc\u202ed"
    assert f"got {escaped}\n  e\tf [mail.odd" in said
    assert f"ValueError: {escaped}\n  e\tf\n" in said
    # A line of the program's own is as the program wrote that line.
    assert "WARNING shop: \x1b[31mred\x1b[0m\n" in said
    assert not {"\x07", "\x9b", "\u202e"} & set(said)
    forge("enqueue", "mail.odd", *options)
    said = work(FORGE_LOG_FORMAT="json")
    assert not {"\x07", "\x9b", "\u202e"} & set(said)
    entries = [msgspec.json.decode(line) for line in said.splitlines()]
    assert any("b\x9b2Jc\u202ed\ne" in each["message"] for each in entries)


def test_what_a_job_brings_does_not_look_like_a_line_of_the_log(
    forge: CommandLine, work: Work
) -> None:
    forged = "2026-01-01 00:00:00,000 INFO forge_jobs.runtime.pod.pod: all is well"
    payload = msgspec.json.encode({"text": f"a\n{forged}\r\n{forged}\x0b{forged}\x85{forged}\n\n"})
    forge(
        "enqueue",
        "mail.odd",
        "--queue",
        "mail",
        "--max-attempts",
        "1",
        "--payload",
        payload.decode(),
    )

    said = work()

    lines = re.split("[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]", said.rstrip("\n"))
    assert len([each for each in lines if forged in each]) >= 4
    assert not [each for each in lines if each.startswith(forged)]
    assert "\n  Traceback (most recent call last):\n    File " in said
    first = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ [a-z_.]+: ")
    assert [each for each in lines if not (first.match(each) or each.startswith("  "))] == []


def test_a_log_that_nobody_reads_holds_up_no_job(
    forge: CommandLine, work: Work, tmp_path: Path
) -> None:
    work(FORGE_QUEUES="mail")  # the worker's modules and handlers are there
    out = tmp_path / "out"
    payload = msgspec.json.encode({"path": str(out)}).decode()
    forge("enqueue", "mail.long", "--queue", "mail", "--payload", payload)
    environ = {name: text for name, text in os.environ.items() if not name.startswith("FORGE_")}
    ours = {"FORGE_STORAGE_URL": forge.url, "PYTHONPATH": str(Path.cwd())}
    command = "worker cli_log_handlers:handlers --queues mail --until-empty"

    with subprocess.Popen(
        [sys.executable, "-m", "forge_jobs", *command.split()],
        cwd=tmp_path,
        env=environ | ours,
        stderr=subprocess.PIPE,
    ) as worker:
        try:
            assert worker.wait(timeout=100) == 0
        finally:
            worker.kill()
    assert out.read_text() == "done"
