"""``forge-jobs worker --reload``: real parents and children, and files that really change."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import psutil
import pytest

import forge_jobs
from tests.cli.conftest import CommandLine, wait

pytestmark = pytest.mark.processes

_JOBS = """
import time
from pathlib import Path

from forge_jobs import HandlerRegistry

from shop.words import WORD

handlers = HandlerRegistry()


@handlers.job("t.note")
def note() -> None:
    with Path("notes").open("a") as notes:
        notes.write(f"{WORD} ")


@handlers.job("t.slow")
def slow() -> None:
    Path("begun").touch()
    while not Path("gate").exists():
        time.sleep(0.01)
    note()


@handlers.job("t.die")
def die() -> None:
    import os

    os._exit(7)
"""


def _database(forge: CommandLine) -> sqlite3.Connection:
    """Return a connection past the commands, which start loops."""
    return sqlite3.connect(forge.url.removeprefix("sqlite:///"), timeout=10)


class Project:
    """A program's files, and a worker that reloads them.

    :ivar log: file for what parent and children say
    """

    def __init__(self, forge: CommandLine, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "worker.log"
        self._forge = forge
        self.parent: subprocess.Popen[bytes] | None = None
        (folder / "shop").mkdir()
        (folder / "shop" / "jobs.py").write_text(_JOBS)
        self.write("WORD = 'one'\n")

    def write(self, text: str) -> None:
        """Change the file that the handlers import, as editors do: by a new file."""
        new = self.folder / "shop" / ".words.new"
        new.write_text(text)
        new.replace(self.folder / "shop" / "words.py")

    def start(self, *args: str, **variables: str) -> "subprocess.Popen[bytes]":
        """Start a worker with ``--reload``."""
        environ = {name: each for name, each in os.environ.items() if not name.startswith("FORGE_")}
        environ |= {"FORGE_STORAGE_URL": self._forge.url, "FORGE_QUEUES": "default=4"}
        environ |= {"FORGE_LEASE": "6s", "FORGE_HEARTBEAT_INTERVAL": "1s"}
        environ |= {"FORGE_LEADER_LEASE": "2s", "FORGE_COORDINATE_INTERVAL": "500ms"}
        environ |= {"PYTHONPATH": str(Path(forge_jobs.__file__).parents[1])}
        with self.log.open("ab") as log:
            command = ("forge_jobs", "worker", "shop.jobs:handlers", "--reload", *args)
            self.parent = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=self.folder,
                env=environ | variables,
                stderr=log,
                start_new_session=True,
            )
        return self.parent

    def stop(self) -> int:
        """Stop the worker, and return the exit code."""
        assert self.parent is not None
        self.parent.send_signal(signal.SIGTERM)
        return self.parent.wait(100)

    def enqueue(self, kind: str) -> str:
        """Enqueue a job, and return the id."""
        return self._forge("enqueue", kind).stdout.strip()

    def has_said(self, text: str) -> bool:
        """Return whether the log has this text."""
        return text in self.log.read_text(errors="replace")

    def notes(self) -> list[str]:
        """Return the word of each run so far."""
        notes = self.folder / "notes"
        return notes.read_text().split() if notes.exists() else []

    def has_run(self, before: int) -> bool:
        """Return whether more jobs have run than so many."""
        return len(self.notes()) > before

    def pods(self) -> int:
        """Return how many pods claim jobs."""
        with closing(_database(self._forge)) as database:
            rows = database.execute("SELECT 1 FROM forge_pods WHERE NOT draining").fetchall()
        return len(rows)

    def is_gone(self) -> bool:
        """Return whether no process of a pod is left, killed ones included."""
        with closing(_database(self._forge)) as database:
            rows = database.execute("SELECT process_id FROM forge_pods").fetchall()
        return not any(psutil.pid_exists(process_id) for (process_id,) in rows)

    def until(self, predicate: Callable[[], object], description: str) -> None:
        """Wait, while the parent lives."""
        assert self.parent is not None
        parent = self.parent

        def look() -> object:
            assert parent.poll() is None, self.log.read_text()
            return predicate()

        wait(look, description=description, timeout=60)


@pytest.fixture
def project(forge: CommandLine, tmp_path: Path) -> Iterator[Project]:
    """A program, of which no process outlives the test."""
    made = Project(forge, tmp_path)
    yield made
    if made.parent is not None:
        # The children stop by themselves when their parent is gone.
        made.parent.kill()
        made.parent.wait()
    wait(made.is_gone, description="no process is left", timeout=100)


def _runs_with(project: Project, word: str) -> None:
    """Enqueue until a run has the word of the newest code."""
    for _ in range(1_000):
        before = len(project.notes())
        project.enqueue("t.note")
        project.until(partial(project.has_run, before), "the job has run")
        if project.notes()[-1] == word:
            return
    raise AssertionError(f"no job runs with the code of {word}: {project.log.read_text()}")


def test_jobs_run_with_the_new_code_and_running_ones_have_the_grace(
    forge: CommandLine, project: Project
) -> None:
    project.start("--processes", "2")
    project.until(lambda: project.pods() == 2, "two pods are there")
    slow = project.enqueue("t.slow")
    project.until((project.folder / "begun").exists, "a job runs")

    project.write("WORD = 'two'\n")
    _runs_with(project, "two")
    assert forge.json("jobs", "show", slow)["status"] == "in_progress"
    (project.folder / "gate").touch()
    project.until(lambda: "one" in project.notes()[-2:], "the old code ends its run")
    project.until(lambda: project.pods() == 2, "two pods are there again")

    assert project.stop() == 0, project.log.read_text()
    job = forge.json("jobs", "show", slow)
    assert (job["status"], job["attempt"], job["crashes"]) == ("done", 1, 0)
    assert project.has_said("words.py has changed")
    assert project.has_said("for development, not for production")


@pytest.mark.long
def test_code_that_does_not_load_is_shown_and_the_next_change_helps(
    forge: CommandLine, project: Project
) -> None:
    project.start()
    _runs_with(project, "one")

    project.write("WORD = 'two'\nthis is no Python\n")
    project.until(lambda: project.has_said("before it could run jobs"), "the parent says so")
    waiting = project.enqueue("t.note")
    assert project.has_said("this is no Python"), "the line at fault is shown"
    assert project.has_said("SyntaxError")
    project.write("WORD = 'six'\n")
    project.until(lambda: project.notes()[-1] == "six", "the job that waited has run")

    assert project.stop() == 0, project.log.read_text()
    assert forge.json("jobs", "show", waiting)["attempt"] == 1


@pytest.mark.daily
def test_a_worker_that_starts_with_code_that_does_not_load_waits_and_can_be_stopped(
    project: Project,
) -> None:
    project.write("WORD = \n")
    project.start()
    project.until(lambda: project.has_said("before it could run jobs"), "the parent says so")

    assert project.stop() == 0, project.log.read_text()


@pytest.mark.long
def test_no_claim_is_lost_while_files_change_under_load(
    forge: CommandLine, project: Project
) -> None:
    jobs = 60
    project.start()
    project.until(lambda: project.pods() == 1, "a pod is there")
    for n in range(jobs):
        project.enqueue("t.note")
        if n % 15 == 7:
            project.write(f"WORD = 'word{n}'\n")
    project.until(lambda: len(project.notes()) >= jobs, "all jobs have run")

    assert project.stop() == 0, project.log.read_text()
    assert len(project.notes()) == jobs, "each has run once"
    with closing(_database(forge)) as database:
        found = database.execute("SELECT DISTINCT status, attempt, crashes FROM forge_jobs")
        assert found.fetchall() == [("done", 1, 0)]


@pytest.mark.long
def test_a_process_that_dies_later_is_started_again(project: Project) -> None:
    project.start()
    _runs_with(project, "one")
    project.enqueue("t.die")
    project.until(lambda: project.has_said("ended with exit code 7"), "the process has died")
    _runs_with(project, "one")

    assert project.stop() == 0, project.log.read_text()


@pytest.mark.long
def test_a_process_that_dies_in_the_first_job_is_started_again(project: Project) -> None:
    project.enqueue("t.die")
    project.start()
    project.until(lambda: project.has_said("ended with exit code 7"), "the process has died")
    _runs_with(project, "one")

    assert project.stop() == 0, project.log.read_text()


@pytest.mark.long
def test_a_stop_is_no_second_stop_for_a_process_of_the_code_before(
    forge: CommandLine, project: Project
) -> None:
    project.start()
    project.until(lambda: project.pods() == 1, "a pod is there")
    slow = project.enqueue("t.slow")
    project.until((project.folder / "begun").exists, "a job runs")
    project.write("WORD = 'two'\n")
    _runs_with(project, "two")

    assert project.parent is not None
    project.parent.send_signal(signal.SIGTERM)
    wait(lambda: project.pods() == 0, description="all pods drain", timeout=100)
    (project.folder / "gate").touch()

    assert project.parent.wait(100) == 0, project.log.read_text()
    assert forge.json("jobs", "show", slow)["status"] == "done"
    assert not project.has_said("interrupted now")


@pytest.mark.long
def test_only_python_files_of_the_named_folders_count(project: Project, tmp_path: Path) -> None:
    (tmp_path / "shop" / ".venv").mkdir()
    project.start("--reload-dir", "shop")
    _runs_with(project, "one")
    (tmp_path / "elsewhere.py").write_text("")
    (tmp_path / "shop" / "data.json").write_text("{}")
    (tmp_path / "shop" / ".venv" / "library.py").write_text("")

    project.write("WORD = 'two'\n")
    _runs_with(project, "two")

    assert project.stop() == 0, project.log.read_text()
    said = project.log.read_text()
    assert said.count("start with the new code") == 1, said
    assert "words.py has changed" in said


@pytest.mark.daily
@pytest.mark.parametrize("option", ["--once", "--until-empty"])
def test_a_worker_that_ends_by_itself_does_not_reload(forge: CommandLine, option: str) -> None:
    said = forge.refuse("worker", "shop.jobs:handlers", "--queues", "default", "--reload", option)

    assert "--reload runs until a signal" in said


@pytest.mark.daily
def test_folders_without_reload_are_refused(forge: CommandLine, tmp_path: Path) -> None:
    said = forge.refuse("worker", "a:b", "--queues", "default", "--reload-dir", str(tmp_path))

    assert "--reload-dir has a meaning with --reload alone" in said
