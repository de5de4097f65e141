"""The pragmas of a connection to a SQLite file, and the choice of commits to sync."""

import sqlite3
from dataclasses import dataclass
from pathlib import Path

_WAL_LIMIT = 32 * 1024 * 1024
"""The log shrinks to this after a checkpoint. A checkpoint is tried at every 16 MB, so that the
changes of many commits to one page are written to the file once."""

_WRITER_CACHE_KIB = 2000
_READER_CACHE_KIB = 1000
"""Pages that a connection keeps. The writer has all of them within the first 10,000 jobs. More made
nothing faster, on an empty file and beside 300,000 jobs: the system has the pages too."""

_WITHOUT_SYNC = {"full": "normal", "extra": "normal"}
"""By the ``synchronous`` of the URL: the setting of a commit that the next synced commit makes
durable. With a write-ahead log ``normal`` syncs at checkpoints, where it must, and not at commits.
"""


@dataclass(frozen=True)
class SqliteOptions:
    """How a file is opened.

    :param path: of the database file
    :param synchronous: SQLite's pragma: full, normal, extra or off
    :param timeout: seconds after which any call gives up
    """

    path: Path
    synchronous: str = "full"
    timeout: float = 30.0


def pragmas(options: SqliteOptions, *, read_only: bool) -> list[str]:
    """Return the pragmas of a new connection, in their order."""
    return [
        f"PRAGMA synchronous = {options.synchronous}",
        f"PRAGMA journal_size_limit = {_WAL_LIMIT}",
        "PRAGMA wal_autocheckpoint = 4000",
        "PRAGMA temp_store = MEMORY",
        f"PRAGMA cache_size = -{_READER_CACHE_KIB if read_only else _WRITER_CACHE_KIB}",
        f"PRAGMA query_only = {'ON' if read_only else 'OFF'}",
    ]


class Syncing:
    """Switches between synced and unsynced commits of one connection, on the connection's thread.

    SQLite refuses the switch inside a transaction, so each transaction chooses before its begin.

    :param synchronous: the URL's setting, which synced commits use
    """

    def __init__(self, raw: sqlite3.Connection, synchronous: str) -> None:
        self._raw = raw
        self._synced = synchronous
        self._unsynced = _WITHOUT_SYNC.get(synchronous, synchronous)
        self._current = synchronous

    @property
    def is_mixed(self) -> bool:
        """True when the commits of one connection differ: some are synced, and some are not."""
        return self._synced != self._unsynced

    def choose(self, *, synced: bool) -> None:
        """Choose for the next transaction."""
        wanted = self._synced if synced else self._unsynced
        if wanted != self._current:
            self._raw.execute(f"PRAGMA synchronous = {wanted}")
            self._current = wanted
