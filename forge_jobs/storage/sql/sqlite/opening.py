"""``sqlite:`` URLs."""

from pathlib import Path
from urllib.parse import unquote

from forge_jobs.errors import InvalidInput
from forge_jobs.storage.sql.sqlite.store import SqliteAddress
from forge_jobs.storage.urls import choice, options_of, seconds

_OPTIONS = ("synchronous", "timeout")
_SYNCHRONOUS = ("full", "normal", "extra", "off")


def parse(url: str) -> SqliteAddress:
    """Return the file and the options that the URL names.

    :raises InvalidInput: the URL is wrong (field ``url``)
    """
    location, _, query = url.partition("://")[2].partition("?")
    if not location.startswith("/") or location == "/":
        raise InvalidInput(
            "url", "names no file", "give sqlite:///relative.db or sqlite:////absolute.db"
        )
    options = options_of(query, _OPTIONS)
    path = unquote(location[1:])
    if "\0" in path:
        raise InvalidInput("url", "names a file with a NUL character", "remove %00")
    return SqliteAddress(
        path=None if path == ":memory:" else Path(path),
        synchronous=choice(options, "synchronous", _SYNCHRONOUS, "full"),
        timeout=seconds(options, "timeout", 30),
    )
