"""The log of a worker is written by another thread: a slow reader of the log holds up no job."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forge_jobs.cli import log_writer
from forge_jobs.cli.log_writer import LogWriter

_PIPE = 256 * 1024


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


@pytest.fixture
def log(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    """A logger whose lines go into the pipe."""
    logger = logging.getLogger("tests.log_writer")
    writer = LogWriter(pipe[1])
    writer.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(writer)
    logger.propagate = False
    monkeypatch.setattr(log_writer, "_TO_FLUSH", 5.0)
    yield logger
    logger.removeHandler(writer)
    # The thread has nothing more to write when the number of the pipe becomes another file's.
    monkeypatch.setattr(log_writer, "_TO_FLUSH", 10.0)
    writer.flush()


def accounted_for(said: bytes) -> int:
    """Return how many lines were written, or reported as dropped."""
    lines = said.decode().splitlines()
    told = [line for line in lines if "read too slowly" in line]
    return len(lines) - len(told) + sum(int(line.split()[0]) for line in told)


def test_a_pipe_that_nobody_reads_holds_nobody_up(
    pipe: tuple[int, int], log: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "WAITING_MOST", 100)
    monkeypatch.setattr(log_writer, "_TO_FLUSH", 0.1)
    for number in range(1_000):
        log.warning("%d %s", number, "x" * 1_000)
    log.handlers[0].flush()  # gives up

    # Read at last, the log holds the written and the waiting lines, and the number of dropped ones.
    said = b""
    while accounted_for(said) < 1_000:
        said += os.read(pipe[0], _PIPE)
    assert b"read too slowly" in said


def test_a_pipe_that_does_not_block_loses_no_line(
    pipe: tuple[int, int], log: logging.Logger
) -> None:
    os.set_blocking(pipe[1], False)
    for number in range(1_000):
        log.warning("%d %s", number, "x" * 1_000)

    said = b""
    while said.count(b"\n") < 1_000:
        said += os.read(pipe[0], _PIPE)
    assert b"dropped" not in said


def test_what_was_logged_is_written_when_the_log_is_flushed(
    pipe: tuple[int, int], log: logging.Logger
) -> None:
    # Only here: lines that pytest captures must go through the pipe of its worker.
    log.handlers[0].setFormatter(logging.Formatter("%(message)s of \udcff"))
    for number in range(10):
        log.warning("line %d", number)
    log.handlers[0].flush()

    assert os.read(pipe[0], _PIPE).count(b"\\udcff\n") == 10


_FORKS = """
import logging, os, sys
from forge_jobs.cli.log_writer import LogWriter

logging.basicConfig(handlers=[LogWriter(2)], format="%(message)s")
logging.warning("the parent")
logging.shutdown()
child = os.fork()
if child:
    os.waitpid(child, 0)
else:
    logging.warning("the child")
    logging.shutdown()
    os._exit(0)
"""


def test_a_forked_child_logs_too() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _FORKS],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )

    assert done.stderr == "the parent\nthe child\n"


def test_a_log_that_cannot_be_written_raises_nothing(tmp_path: Path) -> None:
    end = os.open(tmp_path / "log", os.O_CREAT | os.O_RDONLY)
    writer = LogWriter(end)

    writer.handle(logging.makeLogRecord({"msg": "into nothing"}))

    writer.flush()
    os.close(end)
