"""Checks that an open database file is still the file at its path.

A file that is removed or replaced stays open in the processes that have it open. Later writes to
such a file reach no other process, and are lost with the last process that has the file open.
"""

import contextlib
import os
from pathlib import Path

from forge_jobs.errors import Unavailable

_Identity = tuple[int, int]


class OpenFile:
    """The files behind one connection, as of the opening.

    :param path: of the database file
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = f"{path}-wal"
        self._file_was = _identity(path)
        self._log_was: _Identity | None = None
        self.problem = ""
        """The problem that the last check has found, "" for none."""

    def check(self) -> None:
        """Compare the file and its log with the opened ones. The log exists from the first write
        on.

        :raises Unavailable: another file is at the path, or none
        """
        file, log = _identity(self._path), _identity(self._log)
        if file != self._file_was:
            self._refuse("removed" if file is None else "replaced")
        if self._log_was is None:
            self._log_was = log
        elif log != self._log_was:
            self._refuse("separated from its log")
        self.problem = ""

    def sync_log(self) -> None:
        """Wait until the disk has the log.

        An error is left to the next synced commit, which meets the same one and fails. No locks
        lie on the log file, so closing another descriptor takes none away.
        """
        with contextlib.suppress(OSError):
            descriptor = os.open(self._log, os.O_RDWR)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _refuse(self, how: str) -> None:
        name = self._path.name
        self.problem = (
            f"the database file {name} was {how} while this program had it open, and nothing is "
            f"written to it any more; stop all programs that use it, put the file back together "
            f"with {name}-wal, or restore a backup without {name}-wal, and start them again"
        )
        raise Unavailable(self.problem)


def _identity(path: str | Path) -> _Identity | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
