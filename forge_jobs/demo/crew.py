"""The demo's processes: two workers, and a janitor that outlives the demo if need be."""

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from forge_jobs.clock import SystemClock
from forge_jobs.config import child_environment
from forge_jobs.demo.handlers import FILES, PINGS, REPORTS, TICKS
from forge_jobs.demo.troubled import CARDS, CRM, MAIL, ORDERS

WORKERS = 8
"""Files worked on at once, in the whole cluster."""

_SETTINGS = {
    "queues": f"{FILES}={WORKERS},{REPORTS}=1,{PINGS}=2,{TICKS}=1",
    "handlers": "forge_jobs.demo.handlers:handlers",
    "worker_prefix": "demo",
    # A tenth of what a deployment should use, so that a death is noticed while people watch.
    "heartbeat_interval": "500ms",
    "lease": "3s",
    "fence_margin": "1s",
    "leader_lease": "2s",
    "reap_interval": "500ms",
    "coordinate_interval": "500ms",
    "cron_interval": "500ms",
    "event_flush_interval": "500ms",
    "grace": "3s",
}

_OF_DRILLS = {
    "queues": f"{_SETTINGS['queues']},{ORDERS}=4,{CARDS}=2,{CRM}=1,{MAIL}=1",
    "handlers": "forge_jobs.demo.troubled:handlers",
}

# Waits for the end of the demo, which closes the pipe in any case, then removes the folder.
_JANITOR = """
import os, shutil, sys, time
sys.stdin.buffer.read()
for _ in range(100):
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    if not os.path.exists(sys.argv[1]):
        break
    time.sleep(0.1)
"""


class Member:
    """A worker process."""

    def __init__(self, name: str, url: str, folder: Path, settings: Mapping[str, str]) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "forge_jobs", "worker", "--stop-on-eof"],
                env=child_environment({**settings, "storage_url": url, "worker_id": name}),
                # The worker stops when this pipe closes, so no worker outlives the demo.
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                # Ctrl-C is for the demo, which then stops the workers in order.
                start_new_session=True,
            )

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def freeze(self) -> None:
        """Stop the worker in the middle. Nothing moves until it is thawed or killed."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL: the worker cannot finish, clean up or say goodbye."""
        self._process.kill()
        self._process.wait()

    def ask_to_stop(self) -> None:
        if self.is_running:
            self._process.terminate()

    def reap(self, timeout: float) -> None:
        """Wait for the worker's end, and bring it about after ``timeout`` seconds."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
        with contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()

    def last_words(self) -> str:
        """The last line of the log, for a worker that ended by itself."""
        lines = self._log.read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"


@contextmanager
def two_workers(
    url: str, folder: Path, *, has_drills: bool = False
) -> Iterator[tuple[Member, Member]]:
    """Two workers on the store. Both are gone afterwards.

    :param has_drills: the workers serve the queues of the drills too, and end within a second,
        because a visitor waits for that
    """
    members = []
    settings = _SETTINGS | _OF_DRILLS if has_drills else _SETTINGS
    try:
        for name in ("1", "2"):
            members.append(Member(name, url, folder, settings))  # noqa: PERF401 - the first must be stopped if the second fails
        yield members[0], members[1]
    finally:
        for member in members:
            member.ask_to_stop()
        clock = SystemClock()
        until = clock.elapsed() + (1 if has_drills else 10)
        for member in members:
            member.reap(max(until - clock.elapsed(), 0))


@contextmanager
def folder_for_now() -> Iterator[Path]:
    """A temporary folder that goes at the end, also when this process is killed."""
    folder = tempfile.mkdtemp(prefix="forge-jobs-demo-")
    janitor = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _JANITOR, folder],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        janitor.communicate()
