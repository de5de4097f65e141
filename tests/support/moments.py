"""A store as of a moment ago: like a restored copy, or a replica that lagged."""

import asyncio
import io
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import asyncpg

from forge_jobs.storage.sql.progress.tables import metadata
from tests.support.backends import url_of
from tests.support.key_prefixes import client_of
from tests.support.redis_keys import NEVER

_TABLES = tuple(table.name for table in metadata.sorted_tables)


class Snapshot(ABC):
    """Everything that a store held at one time. Bundles of the store may stay open."""

    @abstractmethod
    async def come_back(self) -> None:
        """Undo all that has been written since."""


async def this_moment(backend: str, folder: Path) -> Snapshot:
    """Return the folder's store as of now."""
    if backend == "sqlite":
        return await asyncio.to_thread(_FileSnapshot, folder / "jobs.db")
    url = await url_of(backend, folder)
    if backend.startswith("postgres"):
        return await _DatabaseSnapshot.read(url.partition("?")[0])
    return await KeySnapshot.read(backend, url.partition("prefix=")[2])


class _FileSnapshot(Snapshot):
    """A backup of a SQLite file, which can be restored."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept = path.with_suffix(".moment")
        self._copy(path, self._kept)

    async def come_back(self) -> None:
        await asyncio.to_thread(self._copy, self._kept, self._path)

    @staticmethod
    def _copy(source: Path, target: Path) -> None:
        with closing(sqlite3.connect(source)) as read, closing(sqlite3.connect(target)) as written:
            read.backup(written)


class _DatabaseSnapshot(Snapshot):
    """The rows of a Postgres database."""

    def __init__(self, url: str, rows: Mapping[str, bytes]) -> None:
        self._url = url
        self._rows = rows

    @classmethod
    async def read(cls, url: str) -> "_DatabaseSnapshot":
        rows = {}
        async with _connection(url) as connection, connection.transaction(isolation="serializable"):
            for table in _TABLES:
                copied = io.BytesIO()
                await connection.copy_from_table(table, output=copied, format="binary")
                rows[table] = copied.getvalue()
        return cls(url, rows)

    async def come_back(self) -> None:
        async with _connection(self._url) as connection, connection.transaction():
            for table in reversed(_TABLES):
                await connection.execute(f"DELETE FROM {table}")
            for table in _TABLES:
                source = io.BytesIO(self._rows[table])
                await connection.copy_to_table(table, source=source, format="binary")


class KeySnapshot(Snapshot):
    """The keys of a Redis store."""

    def __init__(self, backend: str, prefix: str, keys: Mapping[bytes, tuple[bytes, int]]) -> None:
        self._backend = backend
        self._prefix = prefix
        self._keys = keys

    @classmethod
    async def read(cls, backend: str, prefix: str) -> "KeySnapshot":
        async with aclosing(client_of(backend)) as client:
            keys = await _keys_of(client, prefix)
            kept = [(key, await client.dump(key), await client.pttl(key)) for key in keys]
        return cls(backend, prefix, {key: (value, ends) for key, value, ends in kept if value})

    @property
    def values(self) -> dict[bytes, bytes]:
        """Return the value of each key."""
        return {key: value for key, (value, _) in self._keys.items()}

    async def come_back(self, only: Callable[[str], bool] = lambda _: True) -> None:
        """Undo what has been written since under those keys alone.

        :param only: of a key's name, without the prefix
        """
        async with aclosing(client_of(self._backend)) as client:
            for key in {*await _keys_of(client, self._prefix), *self._keys}:
                if only(key.decode().partition(":")[2]):
                    await client.unlink(key)
                    if key in self._keys:
                        value, ends_in = self._keys[key]
                        # RESTORE takes 0 for never. PTTL says 0 in the last millisecond, and -2
                        # of a key that expired after DUMP.
                        lives_on = 0 if ends_in == NEVER else max(ends_in, 1)
                        await client.restore(key, lives_on, value)


async def _keys_of(client: Any, prefix: str) -> list[bytes]:
    return [key async for key in client.scan_iter(match=f"{prefix}:*", count=1000)]


@asynccontextmanager
async def _connection(url: str) -> AsyncGenerator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()
