"""What a driver's error means. Driver texts stay here: they may hold hosts and arguments."""

import ssl

from redis import exceptions as driver

from forge_jobs.errors import StorageError, Unavailable

TRANSLATED = (driver.RedisError, OSError, TimeoutError)
"""What the driver raises."""

_UNAVAILABLE: dict[type[Exception], str] = {
    driver.OutOfMemoryError: "the server's memory is used up (maxmemory)",
    driver.ReadOnlyError: "the server has become a replica",
    driver.BusyLoadingError: "the server is loading its data",
    driver.TimeoutError: "the server does not answer",
    TimeoutError: "the server does not answer",
    driver.MasterDownError: "the server is a replica without its primary",
    driver.ClusterDownError: "the cluster is down",
    driver.ConnectionError: "the server cannot be reached",
    OSError: "the server cannot be reached",
}

_REFUSED: dict[type[Exception], str] = {
    driver.AuthenticationError: "the server refuses the user or the password",
    driver.NoPermissionError: "the server's access rules do not let this user run a command on the "
    "keys of this prefix; see docs/redis.md",
}

_PASSING = {
    "BUSY ": "the server is busy with a long script",
    "NOREPLICAS ": "the server has fewer replicas than it must have to write",
    "MISCONF ": "the server cannot write to its disk",
    "TRYAGAIN ": "the cluster moves a slot",
    "UNKILLABLE ": "the server is busy with a long script",
}


def translate(error: Exception) -> StorageError:
    """The error to raise in place of a driver's."""
    # First: the driver has these under its connection errors.
    if isinstance(error.__context__, ssl.SSLCertVerificationError):
        return StorageError("the server's certificate is not trusted; see ssl_ca_certs")
    for kind, text in _REFUSED.items():
        if isinstance(error, kind):
            return StorageError(text)
    for kind, text in _UNAVAILABLE.items():
        if isinstance(error, kind):
            return Unavailable(text)
    for code, text in _PASSING.items():
        if str(error).startswith(code):
            return Unavailable(text)
    return StorageError(f"the server refused a command ({type(error).__name__})")
