"""Whether a database file that is open is still the one at its path.

A file that is removed or replaced stays open under whoever has it open. What is written to it then
is seen by nobody else, and gone with the last process that has it open.
"""

import os
from pathlib import Path

from forge_jobs.errors import Unavailable

_Identity = tuple[int, int]


class OpenFile:
    """The files behind one connection, as they were when it was opened.

    :param path: of the database file
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = f"{path}-wal"
        self._file_was = _identity(path)
        self._log_was: _Identity | None = None
        self.problem = ""
        """What the last check has found; "" when all was well."""

    def check(self) -> None:
        """Hold the file and its log to what they were; the log is there from the first write on.

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
