"""``forge-jobs worker`` as a real process."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import msgspec
import pytest

from forge_jobs import open_storage
from forge_jobs.model.ids import JobId
from tests.cli.conftest import CommandLine, wait
from tests.support import files
from tests.support.outboxes import write_down

pytestmark = pytest.mark.processes

_HANDLERS = """
import asyncio
import gc
from pathlib import Path
from forge_jobs import HandlerRegistry

handlers = HandlerRegistry()

@handlers.job("t.write")
def write(path: str) -> None:
    Path(path).write_text("done")

@handlers.job("t.fail", max_attempts=2)
def fail() -> None:
    raise ValueError("as wanted")

@handlers.job("t.loop")
async def loop(path: str) -> None:
    Path(path).write_text(type(asyncio.get_running_loop()).__module__)

@handlers.job("t.collect")
async def collect(path: str) -> None:
    looked_through = any(each is handlers for each in gc.get_objects())
    Path(path).write_text(f"{gc.isenabled()} {looked_through}")
"""

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(forge: CommandLine, tmp_path: Path) -> Iterator[Start]:
    """Start workers. None outlives the test."""
    (tmp_path / "cli_test_handlers.py").write_text(_HANDLERS)
    running: list[subprocess.Popen[bytes]] = []
    environ = {name: text for name, text in os.environ.items() if not name.startswith("FORGE_")}
    environ |= {"FORGE_STORAGE_URL": forge.url, "PYTHONPATH": str(Path.cwd())}

    def run(*args: str, **variables: str) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [sys.executable, "-m", "forge_jobs", "worker", *args],
            cwd=tmp_path,
            env=environ | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.daily
def test_a_worker_runs_jobs_until_sigterm_and_leaves_nothing_behind(
    forge: CommandLine, start: Start, tmp_path: Path
) -> None:
    worker = start(FORGE_QUEUES="default=2", FORGE_HANDLERS="cli_test_handlers:handlers")
    file = tmp_path / "out"
    forge("enqueue", "t.write", "--payload", msgspec.json.encode({"path": str(file)}).decode())
    wait(file.exists, description="the job ran", timeout=100)
    [pod] = forge.json("pods")["pods"]
    assert pod["pod"]["process_id"] == worker.pid
    assert pod["slots"] == {"default": {"target": 2, "grant": 2}}

    worker.send_signal(signal.SIGTERM)
    _, errors = worker.communicate(timeout=100)

    assert worker.returncode == 0, errors
    assert b"Traceback" not in errors
    assert forge.json("pods")["pods"] == []
    assert [job["status"] for job in forge.json("jobs", "list")["jobs"]] == ["done"]


def test_a_process_takes_no_more_slots_than_it_may_use(
    forge: CommandLine, start: Start, tmp_path: Path
) -> None:
    start(
        *("cli_test_handlers:handlers", "--queues", "default=5", "--concurrency", "2"),
        FORGE_CONCURRENCY="3",
    )
    file = tmp_path / "out"
    forge("enqueue", "t.write", "--payload", msgspec.json.encode({"path": str(file)}).decode())
    wait(file.exists, description="the job ran", timeout=100)

    [pod] = forge.json("pods")["pods"]

    assert pod["pod"]["concurrency"] == 2
    assert pod["slots"] == {"default": {"target": 2, "grant": 2}}


@pytest.mark.parametrize(
    ("wanted", "used"),
    [
        ("asyncio", "asyncio.unix_events"),
        ("auto", "uvloop"),
        pytest.param("uvloop", "uvloop", marks=pytest.mark.long),
    ],
)
def test_handlers_run_on_the_event_loop_that_was_asked_for(
    forge: CommandLine, start: Start, tmp_path: Path, wanted: str, used: str
) -> None:
    file = tmp_path / "out"
    forge("enqueue", "t.loop", "--payload", msgspec.json.encode({"path": str(file)}).decode())

    worker = start(
        "cli_test_handlers:handlers",
        "--queues",
        "default",
        "--until-empty",
        FORGE_EVENT_LOOP=wanted,
    )
    _, errors = worker.communicate(timeout=100)

    assert worker.returncode == 0, errors
    assert file.read_text() == used


def test_collections_pass_over_what_start_up_made(
    forge: CommandLine, start: Start, tmp_path: Path
) -> None:
    file = tmp_path / "out"
    forge("enqueue", "t.collect", "--payload", msgspec.json.encode({"path": str(file)}).decode())

    worker = start("cli_test_handlers:handlers", "--queues", "default", "--until-empty")
    _, errors = worker.communicate(timeout=100)

    assert worker.returncode == 0, errors
    assert file.read_text() == "True False"


@pytest.mark.parametrize(("wanted", "code"), [("auto", 0), ("uvloop", 2)])
def test_without_uvloop_only_who_insists_on_it_is_refused(
    start: Start, tmp_path: Path, wanted: str, code: int
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['uvloop'] = None")

    worker = start(
        "cli_test_handlers:handlers",
        "--queues",
        "default",
        "--until-empty",
        FORGE_EVENT_LOOP=wanted,
        PYTHONPATH=f"{tmp_path}:{Path.cwd()}",
    )
    _, errors = worker.communicate(timeout=100)

    assert worker.returncode == code, errors
    assert (b"pip install forge-jobs[uvloop]" in errors) is (code != 0)


@pytest.mark.daily
def test_until_empty_waits_for_retries_and_ends(forge: CommandLine, start: Start) -> None:
    forge("enqueue", "t.fail", "--max-attempts", "2")

    worker = start("cli_test_handlers:handlers", "--queues", "default", "--until-empty")
    _, errors = worker.communicate(timeout=100)

    assert worker.returncode == 0, errors
    [job] = forge.json("jobs", "list")["jobs"]
    assert (job["status"], job["attempt"]) == ("dead", 2)


def test_until_empty_does_not_wait_for_what_will_not_run(forge: CommandLine, start: Start) -> None:
    forge("enqueue", "t.nobody_knows_it")
    forge("enqueue", "t.fail", "--queue", "shut")
    forge("queues", "pause", "shut")

    worker = start("cli_test_handlers:handlers", "--queues", "default,shut", "--until-empty")
    _, errors = worker.communicate(timeout=100)

    assert worker.returncode == 0, errors
    assert {job["status"] for job in forge.json("jobs", "list")["jobs"]} == {"pending"}


@pytest.mark.daily
def test_once_leaves_what_is_not_due(forge: CommandLine, start: Start, tmp_path: Path) -> None:
    payload = msgspec.json.encode({"path": str(tmp_path / "out")}).decode()
    due = forge("enqueue", "t.write", "--payload", payload).stdout.strip()
    later = forge("enqueue", "t.write", "--payload", payload, "--delay", "1h").stdout.strip()

    worker = start("cli_test_handlers:handlers", "--queues", "default", "--once")
    _, errors = worker.communicate(timeout=100)

    assert worker.returncode == 0, errors
    statuses = {job["id"]: job["status"] for job in forge.json("jobs", "list")["jobs"]}
    assert statuses == {due: "done", later: "pending"}


def test_a_worker_stops_when_the_pipe_to_its_starter_closes(
    forge: CommandLine, start: Start, tmp_path: Path
) -> None:
    worker = start("cli_test_handlers:handlers", "--queues", "default", "--stop-on-eof")
    file = tmp_path / "out"
    forge("enqueue", "t.write", "--payload", msgspec.json.encode({"path": str(file)}).decode())
    wait(file.exists, description="the job ran", timeout=100)

    _, errors = worker.communicate(timeout=100)

    assert worker.returncode == 0, errors


def test_logs_are_json_when_asked_for(start: Start) -> None:
    worker = start(
        *("cli_test_handlers:handlers", "--queues", "default", "--until-empty"),
        FORGE_LOG_FORMAT="json",
    )

    _, errors = worker.communicate(timeout=100)

    entries = [msgspec.json.decode(line) for line in errors.splitlines()]
    assert all({"at", "level", "logger", "message"} <= entry.keys() for entry in entries)


def test_a_worker_waits_for_a_store_that_is_not_ready(
    forge: CommandLine, start: Start, tmp_path: Path
) -> None:
    forge("migrate", "up")
    # Exclusive also keeps readers out, as no other lock of a WAL database does.
    holder = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    holder.execute("pragma locking_mode = exclusive")
    holder.execute("begin exclusive")
    worker = start(
        *("cli_test_handlers:handlers", "--queues", "default", "--until-empty"),
        FORGE_STORAGE_URL=f"{forge.url}?timeout=1",
    )
    assert worker.stderr is not None
    assert any(b"the store is not ready" in line for line in worker.stderr)

    holder.close()
    _, errors = worker.communicate(timeout=100)

    assert worker.returncode == 0, errors


@pytest.mark.daily
def test_a_worker_without_its_store_or_handlers_ends_in_one_line(start: Start) -> None:
    worker = start("nowhere:handlers", "--queues", "default")

    output, errors = worker.communicate(timeout=100)

    assert worker.returncode == 2
    assert output == b""
    assert errors.decode().startswith("Error: 'nowhere:handlers'")
    assert errors.count(b"\n") == 1


def test_a_worker_relays_the_outbox_that_the_environment_names(
    forge: CommandLine, start: Start, tmp_path: Path
) -> None:
    folder = tmp_path / "database"
    folder.mkdir()

    async def write() -> list[JobId]:
        await files.make_in(folder)
        async with await open_storage(files.url_in(folder)) as storage:
            return await write_down(storage, "orders", 3)

    ids = anyio.run(write)
    variables = {"FORGE_OUTBOX": files.url_in(folder), "FORGE_OUTBOX_NAME": "orders"}
    start("cli_test_handlers:handlers", "--queues", "q", **variables)

    async def look() -> bool:
        async with await open_storage(forge.url) as storage:
            return set(await storage.jobs.get(ids)) == set(ids)

    wait(look, description="the worker has relayed", timeout=60)
