"""Translates errors of Postgres by SQLSTATE. Driver texts stay here: they may hold hosts."""

import socket
import ssl

import asyncpg
from asyncpg.exceptions import ClientConfigurationError
from sqlalchemy.exc import DBAPIError

from forge_jobs.errors import (
    InvalidInput,
    NotFound,
    StorageError,
    StorageRefused,
    Unavailable,
)

DRIVER_ERRORS: tuple[type[Exception], ...] = (
    DBAPIError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
    OverflowError,
    UnicodeError,
)

LOCK_TIMEOUT = "55P03"
LACKS_PRIVILEGE = "42501"

_READ_ONLY = "25006"

# Deadlock, serialization failure, lock timeout, and unique violation: another transaction took an
# id or key.
_AGAIN = {"40P01", "40001", LOCK_TIMEOUT, "23505"}

_BY_CODE: dict[str, str] = {
    "57014": "the database cancelled a statement that took too long",
    LOCK_TIMEOUT: "an open transaction holds rows that the call needs",
    "40P01": "the database gave way to another transaction",
    "40001": "the database gave way to another transaction",
    "23505": "another transaction has just stored the same id or key",
    "0A000": "the database cannot do now what every call needs; is it a standby?",
    _READ_ONLY: "the database only takes reads; is it a standby?",
    "53100": "the database's disk is full",
    "53200": "the database server is out of memory",
    "53300": "the database has no connection left; raise max_connections, or lower pool_size",
}
_BY_CLASS = {
    "08": "the connection to the database was lost",
    "53": "the database is out of resources",
    "40": "the database gave way to another transaction",
    "57": "the database server is starting, stopping or has ended the connection",
    "25": "the database ended the transaction",
    "58": "the database server reported a system error",
}
_REFUSED = {
    "28": "the database refused the login; check user and password in the URL",
    LACKS_PRIVILEGE: "the role of the URL lacks a privilege in the database or schema",
    "3F000": "the schema of the URL does not exist and may not be created",
    "42P01": "the tables of the store are missing; run `forge-jobs migrate up`",
}

# Errors caused by the values of a call. All other errors may end once an operator has fixed the
# cause.
_OF_VALUES = {
    "22": "is not accepted by the database",
    "23": "is against a constraint of the database",
    "54001": "is too complex for the database",
}


def sqlstate_of(error: BaseException) -> str:
    """Return the five characters of a Postgres error, empty for any other error."""
    original = error.orig if isinstance(error, DBAPIError) else error
    for name in ("sqlstate", "pgcode"):
        code = getattr(original, name, None)
        if isinstance(code, str):
            return code
    return ""


def _original(error: BaseException) -> BaseException:
    if not isinstance(error, DBAPIError):
        return error
    # SQLAlchemy wraps the error of an asynchronous driver twice.
    return (error.orig and error.orig.__cause__) or error.orig or error


def refusal(error: BaseException) -> str | None:
    """Return what prevents the deletion of a row: a foreign key of the user's, or a trigger."""
    code = sqlstate_of(error)
    if code[:2] not in ("23", "P0"):
        return None
    original = _original(error)
    constraint = getattr(original, "constraint_name", None)
    table = getattr(original, "table_name", None)
    if not constraint:
        return f"a trigger or rule (SQLSTATE {code})"
    return f"constraint {constraint} of table {table}"


def may_go_better(error: BaseException) -> bool:
    """Return whether the same script may succeed when run again."""
    # A statement may have been prepared before the schema changed.
    outdated = isinstance(_original(error), asyncpg.InvalidCachedStatementError)
    return outdated or sqlstate_of(error) in _AGAIN


def leads_nowhere(error: BaseException) -> bool:
    """Return whether the server has said that further calls on the connection would fail too."""
    code = sqlstate_of(error)
    return code == _READ_ONLY or code[:3] == "57P" or code[:2] in ("08", "28")


def translate(error: Exception, server: str = "the database") -> StorageError:
    """Return the error to raise in place of a driver's.

    :param server: how to call a database that cannot be reached
    """
    original = _original(error)
    found = _of_setup(original)
    if found is not None:
        return found
    if isinstance(original, OverflowError) or type(original) is asyncpg.DataError:
        # The driver's own error, for a value that the driver cannot send.
        found = InvalidInput("value", "is beyond 64 bits", "give a smaller number or duration")
    elif isinstance(original, UnicodeError):
        found = InvalidInput("value", "contains a lone surrogate", "give valid Unicode text")
    elif code := sqlstate_of(error):
        found = _of_code(code)
    elif isinstance(original, asyncpg.TargetServerAttributeNotMatched):
        found = Unavailable(f"{server} takes no writes at the moment (target_session_attrs)")
    elif isinstance(original, TimeoutError):
        found = Unavailable(f"{server} did not answer in time")
    elif isinstance(original, OSError | asyncpg.InterfaceError | asyncpg.InternalClientError):
        found = Unavailable(f"{server} cannot be reached: {_why_unreached(original)}")
    return found or StorageRefused("the driver of the database refused the call")


def _why_unreached(error: BaseException) -> str:
    # The system's own texts hold addresses, the driver's the names of its classes.
    if isinstance(error, socket.gaierror):
        return "its name has no address"
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    if isinstance(error, ConnectionError | asyncpg.InterfaceError | asyncpg.InternalClientError):
        return "the connection was lost"
    return "the connection could not be made"


def _of_setup(error: BaseException) -> StorageError | None:
    """Return the error that only a change of the URL or of the server's certificate can mend."""
    if isinstance(error, ClientConfigurationError):
        return InvalidInput(
            "url", "has an option that cannot be met", "check the options that begin with ssl"
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return StorageRefused(
            "the server's certificate is not trusted; see sslrootcert and sslmode"
        )
    # The driver's own error. The driver reports a server that is starting, or a connection cut in
    # the handshake, in other words: a retry may succeed then.
    if type(error) is ConnectionError and "rejected SSL upgrade" in str(error):
        return StorageRefused("the server has no TLS, which the URL's sslmode asks for")
    return None


def _of_code(code: str) -> StorageError:
    if code == "3D000":
        return NotFound("there is no database of this name on the server; create it first")
    if code == "25P01":
        return InvalidInput(
            "connection", "is in autocommit mode, outside a transaction", "begin one first"
        )
    unavailable = _BY_CODE.get(code) or _BY_CLASS.get(code[:2])
    if unavailable is not None:
        return Unavailable(unavailable)
    of_value = _OF_VALUES.get(code) or _OF_VALUES.get(code[:2])
    if of_value is not None:
        return InvalidInput("value", f"{of_value} (SQLSTATE {code})", "give another value")
    refused = _REFUSED.get(code) or _REFUSED.get(code[:2])
    return StorageRefused(
        refused
        or f"the database refused the statement (SQLSTATE {code}); see the log of the server"
    )
