"""The file behind ``sqlite:///:memory:``."""

import tempfile
from pathlib import Path

from forge_jobs.errors import Unavailable
from forge_jobs.private_folders import PrivateFolder, remove_abandoned

_KIND = "memory"


class PrivateFile:
    """A private database file that goes with the last bundle that uses it.

    :raises Unavailable: there is no room for it
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
        """One more bundle uses the file."""
        self._users += 1

    def release(self) -> None:
        """One bundle less; the last one removes the file."""
        self._users -= 1
        if self._users == 0:
            self._folder.remove()


def _parent() -> Path:
    """Shared memory where the system has it, else the folder for temporary files."""
    shared_memory = Path("/dev/shm")
    try:
        with tempfile.TemporaryFile(dir=shared_memory):
            return shared_memory
    except OSError:
        return Path(tempfile.gettempdir())
