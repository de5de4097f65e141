"""The last exit of a worker process that does not end by itself."""

import asyncio
import os
import queue
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from forge_jobs.cli import last_exit
from forge_jobs.cli.last_exit import LastExit

GRACE = timedelta(milliseconds=10)
ROOT = Path(__file__).parents[2]


class Store:
    """Takes jobs back, or does not answer."""

    def __init__(self, *, answers: bool, log: pytest.LogCaptureFixture) -> None:
        self.told_before: list[str] = []
        """The log at the time of each call."""
        self._answers = answers
        self._log = log

    def hand_back(self, seconds: float) -> bool:
        self.told_before.append(self._log.text)
        return self._answers


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> "queue.SimpleQueue[int]":
    """The codes that processes would have ended with."""
    monkeypatch.setattr(last_exit, "BEYOND_GRACE", 0.5)
    monkeypatch.setattr(last_exit, "_TO_TURN", 0.1)
    return queue.SimpleQueue()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that does not turn unless the test runs it."""
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.mark.parametrize(("handed_back", "code"), [(True, 0), (False, 1)])
def test_a_blocked_loop_is_given_up_and_its_jobs_are_handed_back(
    exits: "queue.SimpleQueue[int]",
    loop: asyncio.AbstractEventLoop,
    caplog: pytest.LogCaptureFixture,
    handed_back: bool,
    code: int,
) -> None:
    last = LastExit(GRACE, GRACE, exit_process=exits.put)
    store = Store(answers=handed_back, log=caplog)
    last.loop, last.hand_back = loop, store.hand_back

    last.stop_asked(1)

    assert exits.get(timeout=100) == code
    [told] = store.told_before
    assert "its event loop is blocked" in told, "nothing is left to do once others have the jobs"


def test_a_loop_that_turns_has_all_the_time_of_a_slow_store(
    exits: "queue.SimpleQueue[int]",
    loop: asyncio.AbstractEventLoop,
    caplog: pytest.LogCaptureFixture,
) -> None:
    last = LastExit(GRACE, GRACE, exit_process=exits.put)
    store = Store(answers=True, log=caplog)
    last.loop, last.hand_back = loop, store.hand_back

    async def ask_and_wait() -> int:
        last.stop_asked(1)
        return await asyncio.to_thread(exits.get, timeout=100)

    assert loop.run_until_complete(ask_and_wait()) == 1
    assert store.told_before == []


def test_a_pod_that_has_stopped_gives_its_code(exits: "queue.SimpleQueue[int]") -> None:
    last = LastExit(GRACE, GRACE, exit_process=exits.put)

    last.stop_asked(1)
    last.stopped(0)

    assert exits.get(timeout=100) == 0


_IN_PROCESS = """
import sys, threading
from click.testing import CliRunner
from forge_jobs import HandlerRegistry
from forge_jobs.cli.main import cli

handlers = HandlerRegistry()
done = CliRunner().invoke(cli, ["worker", "--until-empty", "--queues", "q"])
print(done.exit_code, [each.name for each in threading.enumerate() if "exit" in each.name])
"""


def test_a_program_that_runs_the_worker_inside_is_not_ended(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_IN_PROCESS)
    told = {
        "FORGE_STORAGE_URL": f"sqlite:///{tmp_path}/jobs.db",
        "FORGE_HANDLERS": "__main__:handlers",
    }
    said = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, **told, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert said.stdout == "0 []\n"
