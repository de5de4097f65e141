"""``forge-jobs worker --processes``: real parents, real children, really killed."""

import contextlib
import http.client
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import psutil
import pytest

import forge_jobs
from tests.cli.conftest import CommandLine, wait
from tests.support.ports import free_ports

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

kept = []

@handlers.job("t.note")
def note(file: str, keep: int = 0) -> None:
    kept.append(bytearray(keep))
    with Path(file).open("a") as notes:
        notes.write(f"{os.getpid()}\\n")

@handlers.job("t.slow")
def slow(begun: str, gate: str) -> None:
    Path(begun).touch()
    while not Path(gate).exists():
        time.sleep(0.01)
"""

Start = Callable[..., "subprocess.Popen[bytes]"]

_LEFT_WITHIN = 30
"""Seconds for idle children to stop when their parent was killed. The test of that and the fixture
wait so long one after the other, within the time that a planted bug has."""


@pytest.fixture
def start(forge: CommandLine, tmp_path: Path) -> Iterator[Start]:
    """Start parents, each the leader of a process group. No process of them outlives the test."""
    (tmp_path / "many_handlers.py").write_text(_HANDLERS.replace("\\\\n", "\\n"))
    running: list[subprocess.Popen[bytes]] = []
    environ = {name: text for name, text in os.environ.items() if not name.startswith("FORGE_")}
    environ |= {"FORGE_STORAGE_URL": forge.url, "FORGE_QUEUES": "default=2"}
    environ |= {"PYTHONPATH": str(Path(forge_jobs.__file__).parents[1]), "FORGE_GRACE": "20s"}

    def run(*args: str, log: Path | None = None, **variables: str) -> "subprocess.Popen[bytes]":
        with contextlib.ExitStack() as stack:
            process = subprocess.Popen(
                [sys.executable, "-m", "forge_jobs", "worker", "many_handlers:handlers", *args],
                cwd=tmp_path,
                env=environ | variables,
                stderr=stack.enter_context(log.open("wb")) if log else subprocess.PIPE,
                start_new_session=True,
            )
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
    try:
        # The children stop by themselves when their parent is gone.
        wait(
            lambda: not any(map(_is_alive, _pids(forge))),
            description="no child is left",
            timeout=_LEFT_WITHIN,
        )
    finally:
        # A child that goes on holds the pipe of the log open, and would be waited for.
        for left in _in_folder(tmp_path):
            left.kill()
        for process in running:
            process.communicate()


def _in_folder(folder: Path) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cwd() == str(folder):
                yield process


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


@pytest.mark.daily
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


@pytest.mark.daily
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

    wait(lambda: not _pids(forge), description="the pods have left", timeout=_LEFT_WITHIN)


def test_until_empty_ends_the_parent_when_all_are_done(forge: CommandLine, start: Start) -> None:
    parent = start("--processes", "2", "--until-empty")
    _, errors = parent.communicate(timeout=100)

    assert parent.returncode == 0, errors


def _enqueue(forge: CommandLine, kind: str, **payload: object) -> str:
    text = msgspec.json.encode(payload).decode()
    return forge("enqueue", kind, "--payload", text).stdout.strip()


def _statuses(forge: CommandLine) -> list[tuple[str, int, int]]:
    """Return status, attempts and crashes of each job, each combination once."""
    with closing(sqlite3.connect(forge.url.removeprefix("sqlite:///"), timeout=10)) as database:
        return database.execute(
            "SELECT DISTINCT status, attempt, crashes FROM forge_jobs"
        ).fetchall()


def test_processes_are_replaced_after_so_many_jobs_and_no_claim_is_lost(
    forge: CommandLine, start: Start, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    for _ in range(30):
        _enqueue(forge, "t.note", file=str(notes))
    parent = start("--processes", "2", "--until-empty", FORGE_MAX_JOBS_PER_PROCESS="10")

    _, errors = parent.communicate(timeout=200)

    assert parent.returncode == 0, errors
    assert _statuses(forge) == [("done", 1, 0)]
    assert len(notes.read_text().split()) == 30, "each job has run once"
    assert b"the limit is" in errors
    assert b"was replaced after" in errors
    assert _pids(forge) == set(), "the replaced have left"


def test_a_process_that_takes_much_memory_is_replaced_though_it_is_the_only_one(
    forge: CommandLine, start: Start, tmp_path: Path
) -> None:
    notes, log = tmp_path / "notes", tmp_path / "log"
    parent = start("--max-memory-per-process", "300MiB", log=log)
    _enqueue(forge, "t.note", file=str(notes), keep=400 * 1024 * 1024)
    wait(lambda: b"was replaced" in log.read_bytes(), description="a successor runs", timeout=100)
    _enqueue(forge, "t.note", file=str(notes))
    wait(lambda: len(notes.read_text().split()) == 2, description="both have run", timeout=100)

    parent.send_signal(signal.SIGTERM)
    parent.communicate(timeout=100)

    assert parent.returncode == 0, log.read_text()
    assert len(set(notes.read_text().split())) == 2, "in two processes"
    assert "bytes of memory are in use" in log.read_text()


def test_a_replaced_process_finishes_its_jobs_however_long_while_probes_are_answered(
    forge: CommandLine, start: Start, tmp_path: Path
) -> None:
    begun, gate, notes, log = (tmp_path / each for each in ("begun", "gate", "notes", "log"))
    long = _enqueue(forge, "t.slow", begun=str(begun), gate=str(gate))
    with free_ports() as port:
        options = ("--max-jobs-per-process", "1", "--health-port", str(port))
        parent = start(*options, log=log, FORGE_GRACE="100ms")
        wait(begun.exists, description="the job runs", timeout=100)
        assert _readiness(port) == 200
        _enqueue(forge, "t.note", file=str(notes))
        wait(
            lambda: any(draining for _, draining in _pods(forge)),
            description="the process that is full takes no more",
            timeout=100,
        )
        assert [_readiness(port) for _ in range(20)] == [200] * 20, "the successor answers alone"
        _enqueue(forge, "t.note", file=str(notes))
        wait(lambda: len(notes.read_text().split()) == 2, description="others run", timeout=100)
        wait(
            lambda: sum(draining for _, draining in _pods(forge)) == 2,
            description="the successor is full and replaced too, long after the grace",
            timeout=40,
        )
        assert forge.json("jobs", "show", long)["status"] == "in_progress"
        gate.touch()
        wait(lambda: _statuses(forge) == [("done", 1, 0)], description="all end", timeout=100)
        assert "has not ended" not in log.read_text(), "the long job was not given up meanwhile"
    parent.send_signal(signal.SIGTERM)
    parent.communicate(timeout=100)

    assert parent.returncode == 0, log.read_text()


def _readiness(port: int) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("GET", "/readyz")
        return connection.getresponse().status


def test_a_stop_that_comes_by_a_signal_and_by_the_parent_is_one_stop(
    forge: CommandLine, start: Start, tmp_path: Path
) -> None:
    # As systemd stops a service: each process has a signal, and the parent passes the signal on.
    begun, gate, log = (tmp_path / each for each in ("begun", "gate", "log"))
    job_id = _enqueue(forge, "t.slow", begun=str(begun), gate=str(gate))
    parent = start("--max-jobs-per-process", "1000", log=log)
    wait(begun.exists, description="the job runs", timeout=100)

    for process_id in (*_pids(forge), parent.pid):
        os.kill(process_id, signal.SIGTERM)
    wait(
        lambda: (
            log.read_bytes().count(b"SIGTERM: draining") == 2
            and b"the parent process asks for a stop" in log.read_bytes()
        ),
        description="the process at work has heard both",
        timeout=100,
    )
    gate.touch()
    parent.communicate(timeout=100)

    assert parent.returncode == 0, log.read_text()
    assert forge.json("jobs", "show", job_id)["status"] == "done"
    assert "interrupted now" not in log.read_text()


def test_a_second_signal_to_the_parent_hurries_the_processes(
    forge: CommandLine, start: Start, tmp_path: Path
) -> None:
    begun, gate, log = (tmp_path / each for each in ("begun", "gate", "log"))
    job_id = _enqueue(forge, "t.slow", begun=str(begun), gate=str(gate))
    parent = start("--max-jobs-per-process", "1000", log=log)
    wait(begun.exists, description="the job runs", timeout=100)

    parent.send_signal(signal.SIGTERM)
    wait(
        lambda: b"the parent process asks for a stop: draining" in log.read_bytes(),
        description="the process drains",
        timeout=100,
    )
    parent.send_signal(signal.SIGTERM)
    parent.communicate(timeout=100)

    job = forge.json("jobs", "show", job_id)
    assert (job["status"], job["crashes"]) == ("pending", 0), log.read_text()
    assert "the parent process asks for a stop: handlers are interrupted now" in log.read_text()


def test_a_process_that_the_system_does_not_start_is_tried_again(
    forge: CommandLine, start: Start, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    parent = start("--processes", "2", log=log)
    wait(lambda: len(_pids(forge)) == 2, description="two pods are there", timeout=100)
    first = _pids(forge)
    open_files = len(os.listdir(f"/proc/{parent.pid}/fd"))
    limits = resource.prlimit(parent.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(parent.pid, resource.RLIMIT_NOFILE, (open_files, limits[1]))
    os.kill(min(first), signal.SIGKILL)
    wait(
        lambda: b"could not be started" in log.read_bytes(),
        description="a start fails",
        timeout=100,
    )

    resource.prlimit(parent.pid, resource.RLIMIT_NOFILE, limits)
    wait(lambda: len(_pids(forge) - first) == 1, description="another is there", timeout=100)
    parent.send_signal(signal.SIGTERM)
    parent.communicate(timeout=100)

    assert parent.returncode == 0, log.read_text()
    assert "Too many open files; the next try is in" in log.read_text()


def test_a_pod_that_was_asked_to_stop_ends_and_no_process_follows(
    forge: CommandLine, start: Start, tmp_path: Path
) -> None:
    parent = start("--processes", "2")
    wait(lambda: len(_hosts(forge)) == 2, description="two pods are there", timeout=100)
    first, second = sorted(_hosts(forge))

    _ask(forge, "stop", first)
    wait(lambda: first not in _hosts(forge), description="the first pod has left", timeout=100)
    assert "which runs the event loop" in _ask(forge, "stacks", second)
    assert parent.poll() is None
    _ask(forge, "stop", second)
    _, errors = parent.communicate(timeout=100)

    assert parent.returncode == 0, errors
    assert errors.count(b"has stopped by request: none follows") == 2
    assert len((tmp_path / "starts").read_text().split()) == 2


def _ask(forge: CommandLine, verb: str, host: str) -> str:
    """Return the answer. On a loaded machine a pod may be silent for the time of a request."""
    for _ in range(10):
        with contextlib.suppress(AssertionError):
            return forge("pods", verb, host).stdout
    return ""


def _hosts(forge: CommandLine) -> set[str]:
    with closing(sqlite3.connect(forge.url.removeprefix("sqlite:///"), timeout=10)) as database:
        return {host for (host,) in database.execute("SELECT host_id FROM forge_pods")}
