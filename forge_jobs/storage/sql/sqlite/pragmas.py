"""How a SQLite file is opened: the options of the URL, and the pragmas of a connection."""

from dataclasses import dataclass
from pathlib import Path

_WAL_LIMIT = 32 * 1024 * 1024
"""The log shrinks to this after a checkpoint. A checkpoint is tried at every 16 MB, so that the
changes of many commits to one page are written to the file once."""

_WRITER_CACHE_KIB = 2000
_READER_CACHE_KIB = 1000
"""Pages that a connection keeps. The writer has all of them within the first 10,000 jobs. More made
nothing faster, on an empty file and beside 300,000 jobs: the system has the pages too."""


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
