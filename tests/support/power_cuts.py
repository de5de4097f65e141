"""Processes whose machine loses power: of a SQLite file only synced writes are left.

Our own library (power_cut.c) stands between the process and the disk, and keeps a copy of each of
the store's files as of the last sync. A cut is a copy of these copies, at any moment and without a
restart of the machine.
"""

import asyncio
import fcntl
import importlib
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import forge_jobs
from tests.support.waiting import wait_until

_SOURCE = Path(__file__).with_name("power_cut.c")
_TREE = _SOURCE.parents[2]
_PACKAGE = Path(forge_jobs.__file__).parent
_PATIENCE = 100.0

Scenario = Callable[["Machine"], Awaitable[None]]


class Machine:
    """A database file on a disk that keeps what was synced.

    :param folder: an empty one, or that of another process on the same file
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "jobs.db"
        self.url = f"sqlite:///{self.path}"
        self._copies = folder / "synced"
        self._told = folder / "told"
        self._cuts = self._heard = 0

    def start(self, scenario: Scenario, library: Path) -> subprocess.Popen[str]:
        """A process of this machine that runs ``scenario``."""
        self._copies.mkdir(exist_ok=True)
        return subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", __name__),
                *(scenario.__module__, scenario.__name__, self.folder),
            ],
            env={
                **os.environ,
                # The package of this process, which may be a copy, before that of the tree.
                "PYTHONPATH": os.pathsep.join(map(str, (_PACKAGE.parent, _TREE))),
                "LD_PRELOAD": str(library),
                "POWER_CUT_OF": str(self.path),
                "POWER_CUT_COPIES": str(self._copies),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # The process is killed together with those that it starts.
            process_group=0 if "POWER_CUT_OF" not in os.environ else None,
        )

    def syncs(self) -> Counter[str]:
        """Return how often each file was synced, by name."""
        log = self._copies / "syncs"
        return Counter(log.read_text().splitlines() if log.exists() else ())

    def log_syncs(self) -> int:
        """How often the log of the database was synced."""
        return self.syncs()["jobs.db-wal"]

    def log_bytes(self) -> int:
        """The size of the log of the database."""
        return os.path.getsize(f"{self.path}-wal")

    def tell(self, *lines: str) -> None:
        """Say outside of the machine what has been acknowledged."""
        descriptor = os.open(self._told, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
        os.write(descriptor, "".join(f"{line}\n" for line in lines).encode())
        os.close(descriptor)

    async def more_lines(self, least: int) -> list[str]:
        """Wait until ``least`` bytes more have been written than before, and return all lines."""
        wanted = self._heard + least

        def grown() -> bool:
            return self._told.exists() and self._told.stat().st_size >= wanted

        await wait_until(grown, description="the machine says more", timeout=_PATIENCE)
        told = self._told.read_text()
        self._heard = len(told)
        return told.splitlines()

    def after_a_power_cut(self) -> str:
        """Return the URL of the store as a loss of power at this moment would leave it."""
        self._cuts += 1
        left = self.folder / f"left-{os.getpid()}-{self._cuts}"
        left.mkdir()
        with (self._copies / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for name in ("jobs.db", "jobs.db-wal"):
                if (self._copies / name).exists():
                    shutil.copy(self._copies / name, left)
        return f"sqlite:///{left}/jobs.db"


def build(folder: Path) -> Path:
    """Compile the library that is preloaded."""
    library = folder / "power_cut.so"
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, _SOURCE], check=True)
    return library


def play(scenario: Scenario, folder: Path, library: Path) -> None:
    """Run ``scenario`` in a process of a machine of its own. An error there is raised here."""
    process = Machine(folder).start(scenario, library)
    try:
        said, _ = process.communicate(timeout=_PATIENCE)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert process.returncode == 0, said


@contextmanager
def at_work(machine: Machine, scenario: Scenario, count: int) -> Iterator[None]:
    """Start so many processes on this machine, from a process there. Kill them at the end."""
    library = Path(os.environ["LD_PRELOAD"])
    processes = [machine.start(scenario, library) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        said = [process.communicate()[0] for process in processes]
    assert not any(said), said


def _main(module: str, name: str, folder: str) -> None:
    scenario: Scenario = getattr(importlib.import_module(module), name)

    async def run() -> None:
        await scenario(Machine(Path(folder)))

    asyncio.run(run())


if __name__ == "__main__":
    # As the module under the name that the scenarios import.
    importlib.import_module("tests.support.power_cuts")._main(*sys.argv[1:])
