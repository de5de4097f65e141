"""From a URL to a :class:`Storage`. The only importer of backends, and lazily: a program that
uses one store does not load the drivers of the others."""

import difflib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

from forge_jobs.clock import Clock
from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.storage.protocols import Storage

if TYPE_CHECKING:
    from forge_jobs.storage.sql.migrations.migrator import Migrator
    from forge_jobs.storage.sql.sqlite_store import SqliteAddress

_SCHEMES = ("sqlite",)
_OPTIONS = ("synchronous", "timeout")
_SYNCHRONOUS = ("full", "normal", "extra", "off")


async def open_storage(
    url: str, *, clock: Clock | None = None, migrate: bool | None = None, create: bool = True
) -> Storage:
    """Open the store that ``url`` names.

    ``sqlite:///jobs.db`` (relative), ``sqlite:////srv/jobs.db`` (absolute), or
    ``sqlite:///:memory:``, a private temporary file that is removed at close. Options follow as
    ``?name=value&...``:

    ``synchronous``
        What "durable" means for a commit. ``full`` (default): it survives a crash of the process
        and a loss of power. ``normal``: it survives a crash of the process, a loss of power may
        undo the last ones; about twice as fast. ``extra`` and ``off`` as SQLite documents them.
    ``timeout``
        Seconds after which a call gives up with ``Unavailable``; 30 by default.

    A new database gets its schema at once. Any number of processes may do that together.

    :param clock: the store's clock in place of the machine's own, for tests
    :param migrate: True: bring an older schema up to date
    :param create: False: a database that does not exist is ``NotFound``, not a new one
    :raises NotFound: there is no such database, and ``create`` is False
    :raises InvalidInput: the URL is wrong (field ``url``)
    :raises SchemaMismatch: the schema is older (and ``migrate`` is not True) or newer
    :raises Unavailable: the store cannot be reached
    """
    address = _parse(url)
    from forge_jobs.storage.sql.sqlite_store import open_sqlite

    if not create and not _exists(address):
        raise NotFound(
            "there is no database at this URL; correct it, or create one with "
            "'forge-jobs migrate up'"
        )
    return await open_sqlite(address, clock=clock, migrate=bool(migrate))


def open_migrator(url: str, *, clock: Clock | None = None) -> "Migrator":
    """The schema of the store that ``url`` names: its state, its missing changes, its upgrade.

    :raises InvalidInput: the URL is wrong (field ``url``)
    """
    address = _parse(url)
    from forge_jobs.storage.sql.migrations.migrator import Migrator

    return Migrator(address, clock=clock)


def _exists(address: "SqliteAddress") -> bool:
    # os.path also takes names that no file can have, for which Path.exists raises.
    return address.path is None or os.path.exists(address.path)


def _parse(url: str) -> "SqliteAddress":
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise InvalidInput("url", "has no scheme", "give for example sqlite:///jobs.db")
    if scheme not in _SCHEMES:
        raise _unknown("scheme", scheme, _SCHEMES)
    location, _, query = rest.partition("?")
    if not location.startswith("/") or location == "/":
        raise InvalidInput(
            "url", "names no file", "give sqlite:///relative.db or sqlite:////absolute.db"
        )
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in _OPTIONS:
            raise _unknown("option", name, _OPTIONS)
    from forge_jobs.storage.sql.sqlite_store import SqliteAddress

    path = unquote(location[1:])
    if "\0" in path:
        raise InvalidInput("url", "names a file with a NUL character", "remove %00")
    return SqliteAddress(
        path=None if path == ":memory:" else Path(path),
        synchronous=_choice("synchronous", options.get("synchronous", "full"), _SYNCHRONOUS),
        timeout=_seconds(options.get("timeout", "30")),
    )


def _choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value.lower() not in choices:
        raise _unknown(name, value, choices)
    return value.lower()


def _seconds(value: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", value) or not 0 < float(value) <= 3600:
        raise InvalidInput("url", "has a timeout that is no duration", "give 1 to 3600 seconds")
    return float(value)


def _unknown(what: str, value: str, known: Iterable[str]) -> InvalidInput:
    names = list(known)
    nearest = difflib.get_close_matches(value, names, 1)
    fix = f"did you mean {nearest[0]}?" if nearest else f"give one of: {', '.join(names)}"
    return InvalidInput("url", f"has the unknown {what} {value!r}", fix)
