"""Folders of one program, and those that killed programs have left behind.

Each folder holds a file that the program keeps locked. The system releases the lock however the
program ends. Unlike a process id, the lock means the same in another container. So a folder with a
free lock has no program any more.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl

_LOCK = "in-use"


class PrivateFolder:
    """A fresh folder ``forge-jobs-<kind>-...`` in ``parent``, of this program until removed.

    :raises OSError: the folder cannot be made
    """

    def __init__(self, kind: str, parent: Path) -> None:
        unfinished = Path(tempfile.mkdtemp(prefix=f".{_prefix(kind)}", dir=parent))
        self._lock = os.open(unfinished / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        _lock(self._lock)
        # Named only once locked, so that no other program takes the folder for abandoned before.
        self.path = unfinished.rename(parent / unfinished.name.removeprefix("."))

    def remove(self) -> None:
        """Remove the folder with the content."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_abandoned(
    kind: str, parent: Path, before: Callable[[Path], None] = lambda _: None
) -> None:
    """Remove the folders of programs that have ended without doing so.

    :param before: called with each folder, just before the folder is removed
    """
    for folder in parent.glob(f"{_prefix(kind)}*"):
        with suppress(OSError):
            lock = os.open(folder / _LOCK, os.O_RDWR)
            try:
                if _lock(lock):
                    before(folder)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _prefix(kind: str) -> str:
    return f"forge-jobs-{kind}-"


def _lock(descriptor: int) -> bool:
    """True when the lock was free. Never true where there are no such locks."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
