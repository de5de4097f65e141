"""Errors of the driver, translated. Driver texts stay here: they may hold hosts and arguments."""

import re
import ssl

from redis import exceptions as driver

from forge_jobs.errors import StorageError, StorageRefused, Unavailable

TRANSLATED = (driver.RedisError, OSError, TimeoutError)
"""Errors that the driver raises."""


class WrongType(StorageRefused):
    """A key holds another type than the command needs."""


class SlotsDisputed(driver.ClusterDownError):
    """The servers of a cluster name each other as the owner of a slot."""


_UNAVAILABLE: dict[type[Exception], str] = {
    driver.OutOfMemoryError: "the server's memory is used up; raise maxmemory or shorten retention",
    driver.ReadOnlyError: "the server has become a replica",
    driver.BusyLoadingError: "the server is loading its data",
    driver.TimeoutError: "the server does not answer",
    TimeoutError: "the server does not answer",
    driver.MasterDownError: "the server is a replica without its primary",
    SlotsDisputed: "the servers of the cluster do not agree which of them serves a slot",
    driver.ClusterDownError: "the cluster is down",
    driver.MovedError: "the cluster has moved a slot to another server",
    driver.ConnectionError: "the server cannot be reached",
    OSError: "the server cannot be reached",
}

_PASSING = {
    "BUSY ": "the server is busy with a long script",
    "NOREPLICAS ": "the server has fewer replicas than its min-replicas-to-write asks for",
    "MISCONF ": "the server cannot save to its disk and takes no writes; see its log",
    "TRYAGAIN ": "the cluster moves a slot",
    "UNBLOCKED ": "the server has become a replica",
    "UNKILLABLE ": "the server is busy with a long script",
}


_UNREACHED = (driver.TimeoutError, TimeoutError, driver.ConnectionError, OSError)


def is_unreached(error: BaseException) -> bool:
    """Return whether the server was not there or said nothing, rather than refused."""
    return isinstance(error, _UNREACHED) and not isinstance(error, driver.AuthenticationError)


def name_server(error: BaseException, server: str) -> None:
    """Note the server that cannot be reached, for :func:`translate`.

    :param server: host and port, in words. Replaces an earlier note
    """
    if isinstance(error, TRANSLATED):
        error.__notes__ = [server]


def translate(error: Exception) -> StorageError:
    """The error to raise in place of a driver's."""
    # First, because the driver derives this error from its connection errors.
    if isinstance(error.__context__, ssl.SSLCertVerificationError):
        return StorageRefused("the server's certificate is not trusted; see ssl_ca_certs")
    if isinstance(error, driver.NoPermissionError):
        return StorageRefused(_lacking(str(error)))
    if isinstance(error, driver.AuthenticationError):
        return StorageRefused("the server refused the login; check user and password in the URL")
    for kind, text in _UNAVAILABLE.items():
        if isinstance(error, kind):
            return Unavailable(_with_server(error, text) if kind in _UNREACHED else text)
    for code, text in _PASSING.items():
        if str(error).startswith(code):
            return Unavailable(text)
    if str(error).startswith("WRONGTYPE ") or " WRONGTYPE " in str(error):
        return WrongType("a key of the store holds something of another type than it must")
    return StorageRefused("the server refused a command; see the log of the server")


def _lacking(text: str) -> str:
    """Return what the user may not do. The server names the first such command."""
    command = re.search(r"run the '([a-z|]+)' command", text)
    if command is not None:
        what = f"run the command {command[1]}"
    elif "channel" in text:
        what = "use the channel of this prefix"
    else:
        what = "touch keys of this prefix"
    return f"the server's access rules do not let this user {what}; see docs/redis.md"


def _with_server(error: Exception, text: str) -> str:
    [server] = getattr(error, "__notes__", None) or ["the server"]
    return text.replace("the server", server, 1)
