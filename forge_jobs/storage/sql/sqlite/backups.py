"""Copies of a SQLite store, made while programs write to the store."""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from forge_jobs.errors import InvalidInput, NotFound, StorageError
from forge_jobs.storage.sql.sqlite.driver_errors import translate


def copy(source: Path, target: Path, timeout: float) -> None:
    """Copy the store as of one moment. ``target`` is then whole and synced, or does not exist.

    The copy is a read transaction, so no writer waits for it.

    :param timeout: how many seconds to wait for a lock
    :raises InvalidInput: ``target`` exists already, or its folder is missing
    :raises NotFound: there is no store at ``source``
    """
    if not source.is_file():
        raise NotFound(f"there is no database file {source.name}; correct the URL")
    if os.path.lexists(target):
        raise InvalidInput("target", "is there already", "give the name of a new file")
    if not target.parent.is_dir():
        raise InvalidInput("target", "is in a folder that does not exist", "make the folder")
    partial = target.with_name(f"{target.name}.partial")
    try:
        # Left by an interrupted copy.
        partial.unlink(missing_ok=True)
        _copy(source, partial, timeout)
        _sync(partial)
        # Unlike a rename, a link never replaces a file.
        os.link(partial, target)
        _sync(target.parent)
    except sqlite3.Error as error:
        raise translate(error) from None
    except FileExistsError:
        raise InvalidInput("target", "is there already", "give the name of a new file") from None
    except OSError as error:
        raise StorageError(f"the copy could not be written: {error.strerror}") from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _copy(source: Path, target: Path, timeout: float) -> None:
    address = f"{source.resolve().as_uri()}?mode=rw"
    with closing(sqlite3.connect(address, uri=True, timeout=timeout)) as connection:
        connection.isolation_level = None
        stores = "SELECT count(*) FROM sqlite_schema WHERE name = 'forge_migrations'"
        if connection.execute(stores).fetchone() != (1,):
            raise NotFound(f"there is no store in the file {source.name}; correct the URL")
        connection.execute("VACUUM INTO ?", (str(target),))
    with closing(sqlite3.connect(target)) as copied:
        [(found,)] = copied.execute("PRAGMA quick_check(1)").fetchall()
    if found != "ok":
        raise StorageError(f"the copy is damaged, and so may be the store: {found}")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
