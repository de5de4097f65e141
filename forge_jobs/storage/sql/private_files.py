"""The file behind ``sqlite:///:memory:``, and those that killed processes have left behind.

Each lies in a folder of its own with a file that its process keeps locked. The system gives the
lock back however the process ends, and sees through process ids that mean nothing in another
container, so a folder whose lock is free belongs to nobody.
"""

import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from forge_jobs.errors import Unavailable

if sys.platform != "win32":
    import fcntl

_PREFIX = "forge-jobs-memory-"
_UNFINISHED = ".forge-jobs-memory-"
_LOCK = "in-use"


class PrivateFile:
    """A private database file that goes with the last bundle that uses it.

    :raises Unavailable: there is no room for it
    """

    def __init__(self) -> None:
        parent = _parent()
        remove_abandoned(parent)
        self._lock: int | None = None
        try:
            self._folder = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=parent))
            if sys.platform != "win32":
                self._lock = os.open(self._folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
                _lock(self._lock)
                # Named only once it is locked, so that nobody takes it for abandoned before.
                name = self._folder.name.replace(_UNFINISHED, _PREFIX, 1)
                self._folder = self._folder.rename(parent / name)
        except OSError:
            raise Unavailable("the disk has no room for a private database file") from None
        self._users = 0
        self.path = self._folder / "jobs.db"

    def acquire(self) -> None:
        """One more bundle uses the file."""
        self._users += 1

    def release(self) -> None:
        """One bundle less; the last one removes the file."""
        self._users -= 1
        if self._users == 0:
            if self._lock is not None:
                os.close(self._lock)
            shutil.rmtree(self._folder, ignore_errors=True)


def remove_abandoned(parent: Path) -> None:
    """Remove the private files of processes that have ended without doing so."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            lock = os.open(folder / _LOCK, os.O_RDWR)
            try:
                if _lock(lock):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _lock(descriptor: int) -> bool:
    """Whether the lock was free. Where there are no such locks it never is."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _parent() -> Path:
    """Shared memory where the system has it, else the folder for temporary files."""
    shared_memory = Path("/dev/shm")
    try:
        with tempfile.TemporaryFile(dir=shared_memory):
            return shared_memory
    except OSError:
        return Path(tempfile.gettempdir())
