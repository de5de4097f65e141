"""The file behind ``sqlite:///:memory:``."""

import tempfile
from pathlib import Path

from forge_jobs.errors import Unavailable
from forge_jobs.private_folders import PrivateFolder, remove_abandoned

_KIND = "memory"


class PrivateFile:
    """A private database file, removed with the last bundle that uses it.

    :raises Unavailable: there is no room for the file
    """

    def __init__(self) -> None:
        parent = _parent()
        remove_abandoned(_KIND, parent)
        try:
            self._folder = PrivateFolder(_KIND, parent)
        except OSError:
            raise Unavailable("the disk has no room for a private database file") from None
        self._users = 0
        self.path = self._folder.path / "jobs.db"

    def acquire(self) -> None:
        """Count one more bundle that uses the file."""
        self._users += 1

    def release(self) -> None:
        """Count one bundle less. The last one removes the file."""
        self._users -= 1
        if self._users == 0:
            self._folder.remove()


def _parent() -> Path:
    """Return the folder of shared memory where the system has one, otherwise that of temporary
    files."""
    shared_memory = Path("/dev/shm")
    try:
        with tempfile.TemporaryFile(dir=shared_memory):
            return shared_memory
    except OSError:
        return Path(tempfile.gettempdir())
