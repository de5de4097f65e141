"""Places for the stores of tests on shared servers: a schema, a prefix or a file of one process.

All names begin with :data:`BEGINNING`, or as the URL says, and go on with the id of the process and
a random word. So any number of processes may test on one server at once. A killed one leaves its
place, which shows in the name: schemas are removed by the next process that tests there.
"""

import hashlib
import os
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from forge_jobs.errors import Unavailable
from forge_jobs.storage.opening import open_migrator
from forge_jobs.storage.redis.driver.address import parse_url
from forge_jobs.storage.redis.driver.routing import servers_of
from forge_jobs.storage.sql.postgres.driver.connecting import connect
from forge_jobs.storage.sql.postgres.opening import parse as parse_postgres
from forge_jobs.storage.sql.progress.tables import metadata
from forge_jobs.storage.sql.sqlite.opening import parse as parse_sqlite

BEGINNING = "forge_test"

_KEYS_AT_ONCE = 1_000


class Place(ABC):
    """Where the stores of a process are, one after the other.

    :ivar url: of the place, with a name that no other process has
    """

    def __init__(self, url: str) -> None:
        self.url = url

    async def sweep(self) -> None:
        """Remove places of processes of this machine that are dead, where that is cheap."""
        return

    @abstractmethod
    async def empty(self) -> None:
        """Remove all jobs, also where there is no store yet.

        :raises Unavailable: something holds the records
        """

    @abstractmethod
    async def remove(self) -> None:
        """Remove all that is there, if possible."""


def place_on(url: str) -> Place:
    """Return a new place on the server, or beside the file, that ``url`` names.

    :raises InvalidInput: the URL is wrong (field ``url``)
    """
    open_migrator(url)  # checks the URL, and connects to nothing
    scheme = url.partition("://")[0]
    if scheme == "sqlite":
        return _File(_beside(url))
    if scheme.startswith("redis"):
        return _Prefix(_named(url, "prefix"))
    return _Schema(url)


def _word() -> str:
    return secrets.token_hex(5)


@cache
def _neighbourhood() -> str:
    """Return a word for the processes that see each other's ids, "" where no system says which.

    Until the machine starts again, and of one container.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
    return hashlib.blake2b(f"{boot} {space}".encode(), digest_size=4).hexdigest()


def own_name(beginning: str) -> str:
    """Return a name that no other process takes, and that shows which process has taken it."""
    return "_".join(filter(None, (beginning, _neighbourhood(), f"{os.getpid()}", _word())))


def left_by_the_dead(names: Iterable[str], beginning: str) -> list[str]:
    """Return the names, of those that :func:`own_name` gave, whose process is no more."""
    if not (word := _neighbourhood()):
        return []
    own = re.compile(f"{re.escape(beginning)}_{word}_([0-9]+)_")
    owners = [(name, own.match(name)) for name in names]
    return [name for name, found in owners if found and not _lives(int(found[1]))]


def _lives(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except OSError:  # a process of another user
        return True
    return True


def _named(url: str, option: str) -> str:
    """Put a name of this place into the options of a URL."""
    address, options = url.partition("?")[0], _options_of(url)
    options[option] = own_name(options.get(option, BEGINNING))
    return f"{address}?{urlencode(options)}"


def _options_of(url: str) -> dict[str, str]:
    return dict(parse_qsl(url.partition("?")[2], keep_blank_values=True))


def _beside(url: str) -> str:
    address, mark, query = url.partition("?")
    folder, slash, name = address.rpartition("/")
    stem, dot, suffix = name.rpartition(".")
    own = f"{stem}-{_word()}{dot}{suffix}" if dot else f"{name}-{_word()}"
    return f"{folder}{slash}{own}{mark}{query}"


class _File(Place):
    """A file beside the named one. Each store is a new file."""

    async def empty(self) -> None:
        path = parse_sqlite(self.url).path
        assert path is not None, "a store in memory needs no place"
        for file in path.parent.glob(f"{path.name}*"):
            with suppress(OSError):
                file.unlink()

    async def remove(self) -> None:
        await self.empty()


class _Schema(Place):
    """A schema whose tables stay from store to store: making them takes longer than most tests."""

    def __init__(self, url: str) -> None:
        super().__init__(_named(url, "schema"))
        self._beginning = _options_of(url).get("schema", BEGINNING)
        self._options = parse_postgres(self.url).options
        self._schema = _quoted(self._options.schema)

    async def sweep(self) -> None:
        connection: Any = None
        with suppress(Exception):  # another process may remove the same, or the server be gone
            connection = await connect(self._options)
            found = await connection.fetch("SELECT nspname FROM pg_namespace")
            for name in left_by_the_dead([row[0] for row in found], self._beginning):
                drop = f"DROP SCHEMA IF EXISTS {_quoted(name)} CASCADE"
                await connection.execute(f"SET lock_timeout = '3s'; {drop}")
        if connection is not None:
            await connection.close()

    async def empty(self) -> None:
        tables = (f"{self._schema}.{table.name}" for table in reversed(metadata.sorted_tables))
        await self._run("; ".join(f"DELETE FROM {table}" for table in tables))

    async def remove(self) -> None:
        with suppress(Unavailable):
            await self._run(f"DROP SCHEMA IF EXISTS {self._schema} CASCADE")

    async def _run(self, statement: str) -> None:
        connection: Any = None
        try:
            connection = await connect(self._options)
            exists = await connection.fetchval(
                "SELECT true FROM pg_namespace WHERE nspname = $1", self._options.schema
            )
            if exists:
                await connection.execute(f"SET lock_timeout = '3s'; {statement}")
        except Exception as error:  # an open transaction of a test, or a server that is gone
            raise Unavailable(f"schema {self._options.schema} cannot be emptied: {error}") from None
        finally:
            if connection is not None:
                await connection.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class _Prefix(Place):
    """A prefix of keys."""

    async def empty(self) -> None:
        url = parse_url(self.url)
        servers = servers_of(url)
        # Each key is the prefix, a colon, and a tag in braces.
        pattern = re.sub(r"([\\*?\[\]])", r"\\\1", f"{url.keys.prefix}:") + "*"
        try:
            for pool in await servers.each():
                cursor: Any = 0
                while True:
                    scan = ("SCAN", cursor, "MATCH", pattern, "COUNT", _KEYS_AT_ONCE)
                    [(cursor, keys)] = await pool.converse([scan])
                    if keys:
                        await pool.converse([("UNLINK", key) for key in keys])
                    if int(cursor) == 0:
                        break
        finally:
            await servers.close()

    async def remove(self) -> None:
        with suppress(Exception):  # the server may be gone
            await self.empty()
