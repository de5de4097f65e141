"""The end of a ``forge-jobs worker`` process, whatever the handlers do."""

import os
import signal
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli.conftest import CommandLine, wait
from tests.support.ports import free_ports

pytestmark = pytest.mark.processes

_LOOPS = ["asyncio", pytest.param("uvloop", marks=pytest.mark.long)]

_HANDLERS = """
import asyncio, subprocess, sys, threading, time
from pathlib import Path
import anyio
from forge_jobs import HandlerRegistry

handlers = HandlerRegistry()

@handlers.job("t.swallow")
async def swallow(file: str) -> None:
    Path(file).touch()
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

@handlers.job("t.asyncio_thread")
async def asyncio_thread(file: str) -> None:
    Path(file).touch()
    await asyncio.to_thread(time.sleep, 60)

@handlers.job("t.anyio_thread")
async def anyio_thread(file: str) -> None:
    Path(file).touch()
    await anyio.to_thread.run_sync(time.sleep, 60)

@handlers.job("t.own_thread")
async def own_thread(file: str) -> None:
    threading.Thread(target=time.sleep, args=(60,), name="of-the-handler").start()
    Path(file).touch()

@handlers.job("t.blocks")
async def blocks(file: str) -> None:
    Path(file).touch()
    time.sleep(60)

@handlers.job("t.child_exits", max_attempts=1)
async def child_exits(file: str) -> None:
    async def child() -> None:
        sys.exit(3)

    await asyncio.gather(child(), asyncio.sleep(0.01))

@handlers.job("t.cancels_all", max_attempts=1)
async def cancels_all(file: str) -> None:
    for task in asyncio.all_tasks():
        task.cancel()

@handlers.job("t.stops_the_loop", max_attempts=1)
async def stops_the_loop(file: str) -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.01)

@handlers.job("t.neighbour", max_attempts=1)
async def neighbour(file: str) -> None:
    Path(file).touch()
    while not Path(file + ".go").exists():
        await asyncio.sleep(0.01)

@handlers.job("t.reads_stdin", max_attempts=1)
def reads_stdin(file: str) -> None:
    subprocess.run(["cat"], timeout=20, check=True)
"""


class Worker:
    """Starts one worker process on the store of the command line."""

    def __init__(self, forge: CommandLine, folder: Path) -> None:
        self.forge, self.folder = forge, folder
        self.process: subprocess.Popen[bytes] | None = None
        (folder / "exit_handlers.py").write_text(_HANDLERS)

    def start(self, *args: str, **env: str) -> None:
        kept = {name: text for name, text in os.environ.items() if not name.startswith("FORGE_")}
        kept |= {"FORGE_STORAGE_URL": self.forge.url, "PYTHONPATH": str(Path.cwd())}
        kept |= {"FORGE_QUEUES": "default=8", "FORGE_GRACE": "1s"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "forge_jobs", "worker", "exit_handlers:handlers", *args],
            cwd=self.folder,
            env=kept | env,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def begins(self, *kinds: str) -> dict[str, str]:
        """Enqueue a job of each kind, wait until all run, and return kind -> id."""
        ids = {kind: self.enqueue(kind) for kind in kinds}
        files = [self.file(kind) for kind in kinds]
        wait(lambda: all(map(Path.exists, files)), description="they run", timeout=100)
        return ids

    def enqueue(self, kind: str) -> str:
        payload = msgspec.json.encode({"file": str(self.file(kind))}).decode()
        return self.forge("enqueue", f"t.{kind}", "--payload", payload).stdout.strip()

    def file(self, kind: str) -> Path:
        return self.folder / kind

    def job(self, job_id: str) -> Any:
        return self.forge.json("jobs", "show", job_id)

    def is_now(self, job_id: str, status: str) -> None:
        """Wait until the job has this status. Read past the commands, which start a loop each."""
        path = self.forge.url.removeprefix("sqlite:///")

        def look() -> bool:
            with closing(sqlite3.connect(path, timeout=10)) as database:
                query = "SELECT status FROM forge_jobs WHERE id = ?"
                return bool(database.execute(query, (job_id,)).fetchone() == (status,))

        wait(look, description=f"it is {status}", timeout=100)

    def send(self, signum: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(signum)

    def ends(self, code: int, at_most: float = 50) -> str:
        """Wait for the end of the process, and return the log."""
        assert self.process is not None
        _, log = self.process.communicate(timeout=at_most)
        assert self.process.returncode == code, log.decode()
        return log.decode()


@pytest.fixture
def worker(forge: CommandLine, tmp_path: Path) -> Iterator[Worker]:
    """A worker process that does not outlive the test."""
    made = Worker(forge, tmp_path)
    yield made
    if made.process is not None:
        made.process.kill()
        made.process.communicate()


@pytest.mark.daily
def test_a_worker_ends_after_its_grace_whatever_its_handlers_do(worker: Worker) -> None:
    worker.start()
    ids = worker.begins("swallow", "asyncio_thread", "anyio_thread", "own_thread")

    worker.send(signal.SIGTERM)
    log = worker.ends(0)

    for kind in ("swallow", "asyncio_thread", "anyio_thread"):
        job = worker.job(ids[kind])
        assert (job["status"], job["attempt"], job["crashes"]) == ("pending", 0, 0), kind
    assert worker.forge.json("pods")["pods"] == []
    assert (
        f"job {ids['swallow']} (t.swallow) has not ended: the handler swallows CancelledError"
        in log
    )


def test_a_thread_that_no_job_knows_of_does_not_keep_the_process(worker: Worker) -> None:
    worker.start()
    worker.begins("own_thread")

    worker.send(signal.SIGTERM)
    log = worker.ends(0)

    assert "the process ends now" in log
    assert "of-the-handler" in log


def test_a_handler_that_blocks_the_event_loop_does_not_keep_the_process(worker: Worker) -> None:
    worker.start(FORGE_GRACE="0.1s")
    ids = worker.begins("blocks")

    worker.send(signal.SIGTERM)
    log = worker.ends(0)

    assert ids["blocks"] in log.partition("its event loop is blocked")[2]
    job = worker.job(ids["blocks"])
    assert (job["status"], job["attempt"], job["crashes"]) == ("pending", 0, 0)
    assert worker.forge.json("pods")["pods"] == []


@pytest.mark.parametrize("loop", _LOOPS)
def test_a_child_task_that_exits_fails_its_job_and_no_other(worker: Worker, loop: str) -> None:
    worker.start(FORGE_EVENT_LOOP=loop, FORGE_GRACE="20s")
    beside = worker.begins("neighbour")["neighbour"]
    exits = worker.enqueue("child_exits")
    worker.is_now(exits, "dead")

    assert worker.job(beside)["status"] == "in_progress"
    Path(f"{worker.file('neighbour')}.go").touch()
    worker.is_now(beside, "done")
    worker.send(signal.SIGTERM)
    log = worker.ends(0)

    assert worker.job(exits)["errors"][0]["type"] == "SystemExit"
    assert (worker.job(beside)["attempt"], worker.job(beside)["crashes"]) == (1, 0)
    assert "raised SystemExit, which would have ended the process" in log


@pytest.mark.parametrize("loop", _LOOPS)
def test_a_handler_that_stops_the_event_loop_ends_nothing(worker: Worker, loop: str) -> None:
    worker.start(FORGE_EVENT_LOOP=loop)
    beside = worker.begins("neighbour")["neighbour"]

    worker.is_now(worker.enqueue("stops_the_loop"), "done")

    Path(f"{worker.file('neighbour')}.go").touch()
    worker.is_now(beside, "done")
    worker.send(signal.SIGTERM)
    assert "a handler stopped the event loop" in worker.ends(0)


@pytest.mark.parametrize("beside", [pytest.param((), marks=pytest.mark.long), ("swallow",)])
def test_a_handler_that_cancels_all_tasks_stops_the_worker_in_good_order(
    worker: Worker, beside: tuple[str, ...]
) -> None:
    worker.start()
    ids = worker.begins(*beside)

    worker.enqueue("cancels_all")
    log = worker.ends(1)

    assert "Traceback" not in log
    assert "because the program cancelled the task" in log
    assert worker.forge.json("pods")["pods"] == []
    for job_id in ids.values():
        job = worker.job(job_id)
        assert (job["status"], job["attempt"], job["crashes"]) == ("pending", 0, 0)


def test_what_handlers_start_finds_the_end_of_its_stdin(worker: Worker) -> None:
    worker.start("--stop-on-eof")
    job_id = worker.enqueue("reads_stdin")

    worker.is_now(job_id, "done")


@pytest.mark.parametrize("name", ["SIGHUP", pytest.param("SIGQUIT", marks=pytest.mark.long)])
def test_other_signals_that_end_a_process_drain_it(worker: Worker, name: str) -> None:
    worker.start(FORGE_GRACE="20s")
    job_id = worker.begins("neighbour")["neighbour"]

    worker.send(signal.Signals[name])
    Path(f"{worker.file('neighbour')}.go").touch()
    log = worker.ends(0)

    assert (worker.job(job_id)["status"], worker.job(job_id)["crashes"]) == ("done", 0)
    assert f"{name}: draining" in log


@pytest.mark.parametrize("mode", ["--once", pytest.param("--until-empty", marks=pytest.mark.long)])
def test_a_worker_that_ends_by_itself_hears_of_signals_while_it_waits_for_its_store(
    worker: Worker, mode: str
) -> None:
    worker.start(mode, FORGE_STORAGE_URL="postgresql://nobody@127.0.0.1:9/nothing")
    assert worker.process is not None
    assert worker.process.stderr is not None
    assert any(b"the store is not ready" in line for line in worker.process.stderr)

    worker.send(signal.SIGTERM)

    worker.ends(0)


@pytest.mark.daily
def test_probes_tell_a_worker_that_waits_for_its_store_from_one_that_works(
    worker: Worker, free_port: int
) -> None:
    store = sqlite3.connect(worker.forge.url.removeprefix("sqlite:///"), isolation_level=None)
    # Exclusive also keeps readers out, as no other lock of a WAL database does.
    store.execute("pragma locking_mode = exclusive")
    store.execute("begin exclusive")
    url = f"{worker.forge.url}?timeout=1"
    worker.start("--health-port", str(free_port), FORGE_STORAGE_URL=url)

    def answers(path: str, status: int) -> bool:
        return status_of(f"http://127.0.0.1:{free_port}{path}") == status

    wait(lambda: answers("/healthz", 200), description="it lives", timeout=100)
    assert answers("/readyz", 503)
    store.close()
    wait(lambda: answers("/readyz", 200), description="it is ready", timeout=100)
    assert answers("/healthz", 200)

    worker.send(signal.SIGTERM)
    log = worker.ends(0)
    assert "a stop takes up to 5 s: docker stop -t 6 (default 10)" in log


@pytest.fixture
def free_port() -> Iterator[int]:
    with free_ports() as port:
        yield port


def status_of(url: str) -> int:
    """Return the status of the answer, 0 without one."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


@pytest.mark.daily
def test_ports_of_several_processes_must_exist(forge: CommandLine) -> None:
    command = ("worker", "x:y", "--queues", "default", "--processes", "3")
    answer = forge(*command, "--health-port", "65534", code=2).stderr
    assert "3 processes need ports up to 65536" in answer
