"""Translates the driver's errors by their codes. Driver texts stay here: they may hold paths."""

import sqlite3

from sqlalchemy.exc import DBAPIError

from forge_jobs.errors import InvalidInput, StorageError, StorageRefused, Unavailable

# SQLITE_PROTOCOL: the log changed hands too often while a reader wanted to begin.
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}

_UNAVAILABLE = {
    sqlite3.SQLITE_FULL: "the disk, or the size limit of the database, is full",
    sqlite3.SQLITE_IOERR: "the disk reported an error",
    sqlite3.SQLITE_READONLY: "the database file cannot be written, it is read-only",
    sqlite3.SQLITE_CANTOPEN: "the database file cannot be opened; does its folder exist?",
    sqlite3.SQLITE_PERM: "the database file may not be accessed",
    sqlite3.SQLITE_NOMEM: "no memory is left",
    sqlite3.SQLITE_INTERRUPT: "the statement took too long",
}

# Errors caused by the values of a call. All other errors may end once an operator has fixed the
# cause.
_OF_VALUES = {
    sqlite3.SQLITE_TOOBIG: "is too large for the database",
    sqlite3.SQLITE_CONSTRAINT: "is against a constraint of the database",
    sqlite3.SQLITE_MISMATCH: "is not accepted by the database",
}

_BROKEN = {
    sqlite3.SQLITE_CORRUPT: "the database file is damaged",
    sqlite3.SQLITE_NOTADB: "the file is not a SQLite database",
}


def _code(error: BaseException) -> int | None:
    """Return SQLite's extended result code, None when the error is not SQLite's."""
    original = error.orig if isinstance(error, DBAPIError) else error
    return getattr(original, "sqlite_errorcode", None)


def primary_code(error: BaseException) -> int | None:
    """Return SQLite's primary result code, None when the error is not SQLite's."""
    code = _code(error)
    return None if code is None else code & 0xFF


def is_busy(error: BaseException) -> bool:
    """Return whether another connection's lock is in the way, so that trying again may help."""
    return primary_code(error) in _BUSY


def is_not_utf8(error: BaseException) -> bool:
    """Return whether a stored text is not UTF-8. The driver's own error for that has no code."""
    original = error.orig if isinstance(error, DBAPIError) else error
    return (
        isinstance(original, sqlite3.OperationalError)
        and primary_code(original) is None
        and str(original).startswith("Could not decode to UTF-8")
    )


TRANSLATED = (DBAPIError, sqlite3.Error, OverflowError, UnicodeError)
"""Errors of the driver, and of values that the driver cannot bind."""


def translate(error: Exception) -> StorageError:
    """Return the error to raise in place of a driver's."""
    if isinstance(error, OverflowError):
        return InvalidInput("value", "is beyond 64 bits", "give a smaller number or duration")
    if isinstance(error, UnicodeError):
        return InvalidInput("value", "contains a lone surrogate", "give valid Unicode text")
    code = primary_code(error)
    if code in _BUSY:
        return Unavailable("the database is locked by another writer")
    if code in _UNAVAILABLE:
        return Unavailable(_UNAVAILABLE[code])
    if code in _BROKEN:
        return StorageRefused(_BROKEN[code])
    name = getattr(getattr(error, "orig", error), "sqlite_errorname", type(error).__name__)
    # A trigger's error has this code for any text.
    if code in _OF_VALUES and _code(error) != sqlite3.SQLITE_CONSTRAINT_TRIGGER:
        return InvalidInput("value", f"{_OF_VALUES[code]} ({name})", "give another value")
    if "no such table" in str(error):
        return StorageRefused("the tables of the store are missing; run `forge-jobs migrate up`")
    return StorageRefused(f"the database refused the statement ({name})")
