"""Copies of a SQLite store, made while programs go on writing to it."""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from forge_jobs.errors import InvalidInput, NotFound, StorageError
from forge_jobs.storage.sql.sqlite.driver_errors import translate


def copy(source: Path, target: Path, timeout: float) -> None:
    """Copy the store as it is at one moment; ``target`` is whole and synced, or not there.

    The copy is a read transaction: it holds no writer up.

    :param timeout: seconds for which a lock is waited for
    :raises InvalidInput: something is at ``target``, or its folder is not there
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
        # What an interrupted copy has left.
        partial.unlink(missing_ok=True)
        _copy(source, partial, timeout)
        _sync(partial)
        # Unlike a rename, a link takes nobody's place.
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
