"""Workers and producers of this release and of the one before, side by side on one store, under
load: roll-outs and roll-backs in both orders. Nothing is lost, stranded or refused."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, chain
from pathlib import Path

import pytest

import forge_jobs
from forge_jobs import open_storage
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import TERMINAL, Job, JobStatus
from tests.releases import rolling_jobs
from tests.releases.before import (
    commit_before,
    commit_of_last_release,
    edited_since,
    python_of,
)
from tests.support.backends import forget, url_of
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.long]

WORKERS = 2
SLOTS = {"rolling": 8, "other": 4}
"""Of the whole fleet."""
QUEUES = ",".join(f"{name}={slots}" for name, slots in SLOTS.items())
MORE = 40
"""Jobs that end between two steps of a deploy."""

LONG_AGO = 9
"""The schema version whose last commit before is tried."""

AIM = "95% within 30s"

_OF_OLD = "and takes others. The call is repeated with growing pauses: StorageClosed: "
"""Said by a worker of an earlier release whose pass outlasts a stop on a loaded machine. This
release says nothing then, which is a test of its own."""

OLD_MODES, NEW_MODES = ("keep",), ("keep", "keep-last", "debounce", "replace", "cooldown")


@dataclass(frozen=True)
class Release:
    """Programs of one release.

    :ivar modes: of unique keys, that producers use
    """

    name: str
    python: Path
    modes: tuple[str, ...]


@dataclass
class Deployment:
    """The programs that run, and their files in one folder."""

    url: str
    folder: Path
    workers: dict[str, list["subprocess.Popen[bytes]"]] = field(default_factory=dict)
    producers: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    everything: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    started: Counter[str] = field(default_factory=Counter)

    def command(self, release: Release, *args: str) -> None:
        """Run a command of a release to its end."""
        done = self._popen(release, "-m", "forge_jobs", *args)
        assert done.wait(100) == 0, self.log

    @property
    def log(self) -> str:
        """Return all that the programs have said."""
        return (self.folder / "programs.log").read_text(errors="replace")

    def words(self, suffix: str) -> Iterator[list[str]]:
        """Yield the words of each whole line of the files with a suffix.

        A program may be in the middle of a line while the file is read.
        """
        for path in sorted(self.folder.glob(f"*{suffix}")):
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    yield line.split()

    def runs(self, event: str) -> Counter[str]:
        """Return how often runs of each job have come so far."""
        return Counter(words[1] for words in self.words("ledger") if words[0] == event)

    async def start_workers(self, release: Release) -> None:
        """Start workers of a release, and wait until each has run a job."""
        options = ("worker", "rolling_jobs:handlers", "--queues", QUEUES)
        self.workers[release.name] = [
            self._popen(release, "-m", "forge_jobs", *options) for _ in range(WORKERS)
        ]
        wanted = {str(process.pid) for process in self.workers[release.name]}
        await self._until(
            lambda: wanted <= {words[3] for words in self.words("ledger")},
            description=f"workers of {release.name} run jobs",
        )

    async def stop_workers(self, release: Release) -> None:
        """Stop the workers of a release, as a deploy does."""
        for process in self.workers[release.name]:
            process.send_signal(signal.SIGTERM)
        for process in self.workers.pop(release.name):
            assert await asyncio.to_thread(process.wait, 100) == 0, self.log

    async def start_producer(self, release: Release) -> None:
        """Start a producer of a release, and wait for the first jobs that were accepted."""
        self.started[release.name] += 1
        name = f"{release.name}{self.started[release.name]}"
        process = self._popen(release, "rolling_jobs.py", self.url, name, *release.modes)
        self.producers[release.name] = process
        accepted = self.folder / f"{name}.accepted"
        await self._until(accepted.exists, description=f"{name} enqueues")

    async def stop_producer(self, release: Release) -> None:
        """Stop the producer of a release."""
        (self.folder / f"{release.name}{self.started[release.name]}.stop").touch()
        process = self.producers.pop(release.name)
        assert await asyncio.to_thread(process.wait, 100) == 0, self.log

    async def work_goes_on(self) -> None:
        """Wait until some more jobs have ended."""
        before = self.runs("end").total()
        await self._until(
            lambda: self.runs("end").total() >= before + MORE, description="more jobs have ended"
        )

    def most_at_once(self, queue: str) -> int:
        """Return how many handlers of a queue have run at once, in the whole fleet."""
        steps = {"start": 1, "end": -1, "cut": -1}
        of_queue = (steps[words[0]] for words in self.words("ledger") if words[4] == queue)
        return max(accumulate(of_queue))

    async def _until(self, predicate: Callable[[], bool], *, description: str) -> None:
        """Wait, and fail at once when a program has ended that should go on."""

        def look() -> bool:
            at_work = [*chain(*self.workers.values()), *self.producers.values()]
            assert {process.poll() for process in at_work} <= {None}, self.log[-4000:]
            return predicate()

        await wait_until(look, description=description)

    def kill(self) -> None:
        """Leave nothing behind."""
        for process in self.everything:
            process.kill()
            process.wait()

    def _popen(self, release: Release, *args: str) -> "subprocess.Popen[bytes]":
        environ = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith(("FORGE_", "PYTHON", "VIRTUAL_ENV"))
        }
        environ |= {"FORGE_STORAGE_URL": self.url, "FORGE_HEARTBEAT_INTERVAL": "500ms"}
        environ |= {"FORGE_COORDINATE_INTERVAL": "200ms", "FORGE_LEADER_LEASE": "2s"}
        # This release is the tree, wherever its environment has it from.
        if release is THIS:
            environ["PYTHONPATH"] = str(Path(forge_jobs.__path__[0]).parent)
        with (self.folder / "programs.log").open("ab") as log:
            process = subprocess.Popen(
                [release.python, *args], cwd=self.folder, env=environ, stdout=log, stderr=log
            )
        self.everything.append(process)
        return process


THIS = Release("this", Path(sys.executable), NEW_MODES)


@pytest.fixture(params=["sqlite", "postgres", "redis", "redis-cluster"])
async def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Deployment]:
    """Where no program has been yet."""
    shutil.copy(rolling_jobs.__file__, tmp_path / "rolling_jobs.py")
    url = f"sqlite:///{tmp_path}/rolling.db"
    if request.param == "postgres":
        url = f"{await url_of('postgres', tmp_path)}?schema=rolling"
    elif request.param != "sqlite":
        url = await url_of(request.param, tmp_path)
    made = Deployment(url, tmp_path)
    yield made
    made.kill()
    await forget(request.param, tmp_path)


@pytest.fixture(params=["last", "long ago"])
def before(request: pytest.FixtureRequest) -> Release:
    """The last release, and one of long ago."""
    last = request.param == "last"
    commit = commit_of_last_release() if last else commit_before(LONG_AGO)
    return Release("before", python_of(commit), OLD_MODES)


async def _workers(deployment: Deployment, old: Release, new: Release) -> None:
    await deployment.start_workers(new)
    await deployment.work_goes_on()
    await deployment.stop_workers(old)


async def _producers(deployment: Deployment, old: Release, new: Release) -> None:
    await deployment.start_producer(new)
    await deployment.work_goes_on()
    await deployment.stop_producer(old)


Step = Callable[[Deployment, Release, Release], Awaitable[None]]


@pytest.mark.parametrize(
    "steps", [(_workers, _producers), (_producers, _workers)], ids=["workers", "producers"]
)
async def test_a_roll_out_and_a_roll_back_under_load_lose_strand_and_refuse_nothing(
    deployment: Deployment, before: Release, steps: tuple[Step, ...]
) -> None:
    deployment.command(before, "migrate", "up")
    await deployment.start_producer(before)
    await deployment.start_workers(before)
    await deployment.work_goes_on()

    deployment.command(THIS, "migrate", "up")
    deployment.command(THIS, "queues", "set", "rolling", "--objective", AIM)
    await deployment.work_goes_on()
    for old, new in ((before, THIS), (THIS, before)):
        for step in steps:
            await step(deployment, old, new)
            await deployment.work_goes_on()
    await deployment.stop_producer(before)

    deployment.command(before, "queues", "set", "rolling", "--keep-done", "5d")
    jobs = await _drained(deployment)
    await deployment.stop_workers(before)
    assert [*deployment.words(".refused")] == []
    accepted = {words[0] for words in deployment.words(".accepted")}
    assert accepted - jobs.keys() == set(), "lost"
    ends = deployment.runs("end")
    assert accepted - ends.keys() == set(), "never run"
    assert {job_id for job_id in deployment.runs("start") if ends[job_id] != 1} == set(), "run once"
    for queue, slots in SLOTS.items():
        assert deployment.most_at_once(queue) <= slots
    assert {(job.status, job.crashes) for job in jobs.values()} == {(JobStatus.DONE, 0)}
    errors = [line for line in deployment.log.splitlines() if " ERROR " in line]
    assert [line for line in errors if _OF_OLD not in line] == []
    async with await open_storage(deployment.url) as storage:
        states = {state.name: state for state in await storage.config.queues()}
    # A setting that the release before does not know outlives its declarations and edits.
    assert states["rolling"].settings.objective == AIM
    assert "objective" in states["rolling"].overridden


def test_a_migration_of_a_release_is_never_edited() -> None:
    assert edited_since(commit_of_last_release()) == []


async def _drained(deployment: Deployment) -> dict[JobId, Job]:
    """Wait until all jobs that were accepted have ended, and return them."""
    accepted = list({JobId(words[0]) for words in deployment.words(".accepted")})
    async with await open_storage(deployment.url) as storage:
        jobs: dict[JobId, Job] = {}

        async def all_ended() -> bool:
            for start in range(0, len(accepted), 500):
                jobs.update(await storage.jobs.get(accepted[start : start + 500]))
            return all(job.status in TERMINAL for job in jobs.values())

        await wait_until(all_ended, description="every job has ended")
        return jobs
