"""``forge-jobs worker --processes``: real parents, real children, really killed."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.cli.conftest import CommandLine, wait

pytestmark = pytest.mark.processes

_HANDLERS = """
import os, time
from pathlib import Path
from forge_jobs import HandlerRegistry

starts = Path("starts")
with starts.open("a") as file:
    file.write(f"{os.getpid()}\\\\n")
exits = [int(code) for code in os.environ.get("EXITS", "").split()]
number = len(starts.read_text().split())
if number <= len(exits):
    os._exit(exits[number - 1])

handlers = HandlerRegistry()

@handlers.job("t.slow")
def slow(begun: str, gate: str) -> None:
    Path(begun).touch()
    while not Path(gate).exists():
        time.sleep(0.01)
"""

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(forge: CommandLine, tmp_path: Path) -> Iterator[Start]:
    """Start parents, each the leader of a process group. No process of them outlives the test."""
    (tmp_path / "many_handlers.py").write_text(_HANDLERS.replace("\\\\n", "\\n"))
    running: list[subprocess.Popen[bytes]] = []
    environ = {name: text for name, text in os.environ.items() if not name.startswith("FORGE_")}
    environ |= {"FORGE_STORAGE_URL": forge.url, "FORGE_QUEUES": "default=2"}
    environ |= {"PYTHONPATH": str(Path.cwd()), "FORGE_GRACE": "20s"}

    def run(*args: str, **variables: str) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [sys.executable, "-m", "forge_jobs", "worker", "many_handlers:handlers", *args],
            cwd=tmp_path,
            env=environ | variables,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        running.append(process)
        return process

    yield run
    for process in running:
        # The children stop by themselves when their parent is gone.
        process.kill()
        process.communicate()
    wait(lambda: not any(map(_is_alive, _pids(forge))), description="no child is left", timeout=100)


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def _pods(forge: CommandLine) -> list[tuple[int, bool]]:
    """Return process and drain flag of each pod. Read past the commands, which start loops."""
    with closing(sqlite3.connect(forge.url.removeprefix("sqlite:///"), timeout=10)) as database:
        return database.execute("SELECT process_id, draining FROM forge_pods").fetchall()


def _pids(forge: CommandLine) -> set[int]:
    return {pid for pid, _ in _pods(forge)}


def test_a_killed_process_is_replaced_and_a_signal_stops_all(
    forge: CommandLine, start: Start, tmp_path: Path
) -> None:
    parent = start("--processes", "2", FORGE_WORKER_PREFIX="w", FORGE_WORKER_ID="box")
    wait(lambda: len(_pids(forge)) == 2, description="two pods are there", timeout=100)
    first = _pids(forge)
    assert parent.pid not in first
    labels = {pod["pod"]["label"] for pod in forge.json("pods")["pods"]}
    assert labels == {"w-worker-box-1", "w-worker-box-2"}

    os.kill(min(first), signal.SIGKILL)
    starts = tmp_path / "starts"
    wait(
        lambda: len(starts.read_text().split()) == 3 and len(_pids(forge) - first) == 1,
        description="another process takes its place",
        timeout=100,
    )
    parent.send_signal(signal.SIGTERM)
    _, errors = parent.communicate(timeout=100)

    assert parent.returncode == 0, errors
    assert b"ended with signal 9" in errors
    assert _pids(forge) == {min(first)}, "but for the killed one all have left"


@pytest.mark.long
def test_a_process_that_crashes_at_its_start_is_tried_again_with_growing_pauses(
    forge: CommandLine, start: Start, tmp_path: Path
) -> None:
    parent = start("--processes", "2", EXITS="3 3 3")
    wait(lambda: len(_pids(forge)) == 2, description="two pods are there", timeout=100)

    parent.send_signal(signal.SIGTERM)
    _, errors = parent.communicate(timeout=100)

    assert parent.returncode == 0, errors
    reports = [line for line in errors.decode().splitlines() if "exit code 3" in line]
    assert len(reports) == 3
    assert sum("again in 1 s" in line for line in reports) == 2
    assert sum("again in 2 s" in line for line in reports) == 1


def test_bad_input_ends_the_parent_instead_of_being_tried_again(start: Start) -> None:
    parent = start("--processes", "2", FORGE_HANDLERS="", FORGE_QUEUES="default", FORGE_LEASE="1s")

    assert parent.wait(timeout=100) == 2


@pytest.mark.long
def test_one_that_has_run_with_its_input_is_started_again_when_that_is_refused(
    forge: CommandLine, start: Start
) -> None:
    # As when the port of the process before is still held.
    parent = start("--processes", "2", EXITS="3 3 2 2")
    wait(lambda: len(_pids(forge)) == 2, description="two pods are there", timeout=100)

    parent.send_signal(signal.SIGTERM)
    _, errors = parent.communicate(timeout=100)

    assert parent.returncode == 0, errors
    assert b"ended with exit code 2" in errors


def test_an_interrupt_from_a_terminal_drains_and_does_not_hurry(
    forge: CommandLine, start: Start, tmp_path: Path
) -> None:
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    payload = msgspec.json.encode({"begun": str(begun), "gate": str(gate)}).decode()
    job_id = forge("enqueue", "t.slow", "--payload", payload).stdout.strip()
    parent = start("--processes", "2")
    wait(begun.exists, description="the job runs", timeout=100)

    os.killpg(parent.pid, signal.SIGINT)
    wait(
        lambda: all(draining for _, draining in _pods(forge)),
        description="the pods drain",
        timeout=100,
    )
    gate.touch()
    _, errors = parent.communicate(timeout=100)

    assert parent.returncode == 0, errors
    assert forge.json("jobs", "show", job_id)["status"] == "done"


def test_no_worker_outlives_a_killed_parent(forge: CommandLine, start: Start) -> None:
    parent = start("--processes", "2")
    wait(lambda: len(_pids(forge)) == 2, description="two pods are there", timeout=100)

    parent.kill()

    wait(lambda: not _pids(forge), description="the pods have left", timeout=100)


def test_until_empty_ends_the_parent_when_all_are_done(forge: CommandLine, start: Start) -> None:
    parent = start("--processes", "2", "--until-empty")
    _, errors = parent.communicate(timeout=100)

    assert parent.returncode == 0, errors
