"""The servers of a bench: fresh stores on them, and what they have used so far."""

import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias, TypeVar
from urllib.parse import urlsplit

import asyncpg
from msgspec import Struct
from redis.asyncio import Redis

from bench.monitoring import Requests, monitored
from bench.tracing import BORDERS
from bench.usage import tree_cpu_seconds
from forge_jobs.testing.base import Server
from forge_jobs.testing.servers import PostgresServer, RedisServer

N = TypeVar("N", int, float)
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class Used(Struct, frozen=True):
    """Counters that only grow. None where there is no count.

    :param statements: PostgreSQL: statements of a counted store, else None. Redis: commands,
        including those inside scripts. SQLite's are counted by the processes
    :param borders: further statements, which only begin or end a transaction
    :param wal: bytes of write-ahead log
    """

    cpu: float | None = None
    statements: int | None = None
    borders: int | None = None
    wal: int | None = None

    def since(self, earlier: "Used") -> "Used":
        """Return the difference of two readings."""
        return Used(
            cpu=_less(self.cpu, earlier.cpu),
            statements=_less(self.statements, earlier.statements),
            borders=_less(self.borders, earlier.borders),
            wal=_less(self.wal, earlier.wal),
        )


def _less(later: N | None, earlier: N | None) -> N | None:
    return None if later is None or earlier is None else later - earlier


class Store(ABC):
    """A place where fresh stores are made, one used at a time.

    :param url: a server of the user's. None: one of our own, made by :meth:`__aenter__`
    """

    kind: ClassVar[str]

    def __init__(self, folder: Path, url: str | None = None, cpus: Sequence[int] = ()) -> None:
        self._folder = folder
        self._url = url
        self._cpus = cpus
        self._server: Server | None = None
        self._run = secrets.token_hex(4)
        self._made = 0

    async def __aenter__(self) -> Self:
        if self._url is None:
            self._server = self._start()
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._server is not None:
            self._server.close()

    def _start(self) -> Server | None:
        """Start a server of our own, if the store has one."""
        return None

    def _pinned(self, server: Server) -> Server:
        if self._cpus:
            os.sched_setaffinity(server.process_id, self._cpus)
        return server

    def _cpu(self) -> float | None:
        return tree_cpu_seconds(self._server.process_id) if self._server else None

    @property
    def address(self) -> str:
        """Return the server's own URL, with the credentials."""
        assert self._server is not None or self._url is not None, "not started"
        return self._url or self._server.url  # type: ignore[union-attr]

    def _name(self) -> str:
        self._made += 1
        return f"bench_{self._run}_{self._made}"

    @abstractmethod
    async def fresh(self, *, counted: bool = False, beside: bool = False) -> str:
        """Return the URL of an unused store.

        :param counted: statements are counted where counting costs something
        :param beside: earlier stores stay. Otherwise those of our own server are removed
        """

    async def filled(self, url: str) -> None:  # noqa: B027 - most stores need nothing
        """Called when a store has been filled with jobs to drain."""

    async def used(self) -> Used:
        """Return the counters of the server."""
        return Used(cpu=self._cpu())

    def requests(self) -> AbstractAsyncContextManager[Requests | None]:
        """Count the requests sent during the block, where scripts do more, else give None."""
        return nullcontext()

    async def settings(self) -> Mapping[str, str]:
        """Return the server's settings that move figures."""
        return {}


class PostgresStore(Store):
    """Fresh databases on our own server, fresh schemas on a user's.

    Our own has PostgreSQL's default durability, and all other settings at their default but those
    in :attr:`SETTINGS`. Statements are counted only in databases that ask for a count.
    """

    kind = "postgres"
    SETTINGS: ClassVar[Mapping[str, str]] = {
        "max_connections": "400",
        "shared_preload_libraries": "pg_stat_statements",
        "pg_stat_statements.track": "none",
    }
    SHOWN = (
        "server_version",
        "fsync",
        "synchronous_commit",
        "full_page_writes",
        "shared_buffers",
        "max_connections",
        "max_wal_size",
        "wal_level",
        "jit",
    )

    def __init__(self, folder: Path, url: str | None = None, cpus: Sequence[int] = ()) -> None:
        super().__init__(folder, url, cpus)
        self._databases: list[str] = []

    def _start(self) -> Server:
        server = PostgresServer(durable=True, settings=self.SETTINGS, folder=self._folder)
        return self._pinned(server.start())

    async def fresh(self, *, counted: bool = False, beside: bool = False) -> str:
        if self._url is not None:
            separator = "&" if "?" in self._url else "?"
            return f"{self._url}{separator}schema={self._name()}"
        name = self._name()
        async with self._connected() as connection:
            await connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
            while self._databases and not beside:
                await connection.execute(f"DROP DATABASE {self._databases.pop()} WITH (FORCE)")
            await connection.execute(f"CREATE DATABASE {name}")
            self._databases.append(name)
            if counted:
                await connection.execute(
                    f"ALTER DATABASE {name} SET pg_stat_statements.track = 'top'"
                )
            # What earlier runs wrote is not written back during this one.
            await connection.execute("CHECKPOINT")
        return urlsplit(self.address)._replace(path=f"/{name}").geturl()

    async def filled(self, url: str) -> None:
        """Analyzed at once, as autovacuum does some time later: else luck decides whether the plans
        of a side are made for a full table, for an empty one, or for one that is being filled."""
        if self._server is not None:
            async with _Connected(url) as connection:
                await connection.execute("ANALYZE")

    async def used(self) -> Used:
        async with self._connected() as connection:
            wal = await connection.fetchval(
                "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"
            )
            statements, borders = await self._statements(connection)
        return Used(cpu=self._cpu(), statements=statements, borders=borders, wal=wal)

    async def _statements(self, connection: Connection) -> tuple[int, int | None]:
        if self._server is None:
            asked = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
            return await connection.fetchval(asked), None
        row = await connection.fetchrow(
            "SELECT coalesce(sum(calls) FILTER (WHERE query !~* $2), 0)::bigint,"
            " coalesce(sum(calls) FILTER (WHERE query ~* $2), 0)::bigint"
            " FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid"
            " WHERE d.datname = $1",
            self._databases[-1],
            rf"^\s*({'|'.join(BORDERS)}|START TRANSACTION)\M",
        )
        assert row is not None
        return row[0], row[1]

    async def settings(self) -> Mapping[str, str]:
        async with self._connected() as connection:
            return {name: await connection.fetchval(f"SHOW {name}") for name in self.SHOWN}

    def _connected(self) -> "_Connected":
        return _Connected(urlsplit(self.address)._replace(query="").geturl())


class _Connected:
    """An asyncpg connection, closed at the end."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self) -> Connection:
        self._connection = await asyncpg.connect(self._url)
        return self._connection

    async def __aexit__(self, *error: object) -> None:
        await self._connection.close()


class RedisStore(Store):
    """Our own server emptied, fresh key prefixes on a user's. Our own keeps nothing on disk."""

    kind = "redis"
    SHOWN = ("redis_version", "valkey_version", "io_threads_active", "aof_enabled", "maxmemory")

    def _start(self) -> Server:
        return self._pinned(RedisServer(folder=self._folder).start())

    async def fresh(self, *, counted: bool = False, beside: bool = False) -> str:
        if self._url is not None:
            separator = "&" if "?" in self._url else "?"
            return f"{self._url}{separator}prefix={self._name()}"
        if beside:
            self._made += 1
            return f"{self.address}?prefix=beside{self._made}"
        async with self._client() as client:
            await client.flushall()
        return self.address

    async def used(self) -> Used:
        async with self._client() as client:
            stats = await client.info("commandstats")
            server = await client.info("cpu")
        cpu = float(server["used_cpu_sys"]) + float(server["used_cpu_user"])
        own = ("cmdstat_info", "cmdstat_auth", "cmdstat_hello", "cmdstat_client")
        calls = sum(int(each["calls"]) for name, each in stats.items() if not name.startswith(own))
        return Used(cpu=cpu, statements=calls)

    def requests(self) -> AbstractAsyncContextManager[Requests | None]:
        return monitored(urlsplit(self.address)._replace(query="").geturl())

    async def settings(self) -> Mapping[str, str]:
        async with self._client() as client:
            found: dict[str, Any] = await client.info("all")
            saved = await client.config_get("save")
        return {n: str(found[n]) for n in self.SHOWN if n in found} | {
            "save": str(saved.get("save"))
        }

    def _client(self) -> Redis:
        return Redis.from_url(urlsplit(self.address)._replace(query="").geturl())


class SqliteStore(Store):
    """Fresh files in a folder, with ``synchronous`` of the URL or the library."""

    kind = "sqlite"

    async def fresh(self, *, counted: bool = False, beside: bool = False) -> str:
        if not beside:
            for path in self._folder.glob(f"bench_{self._run}_*"):
                path.unlink()
        query = urlsplit(self._url or "").query
        return f"sqlite:///{self._folder / self._name()}.db" + (f"?{query}" if query else "")


KINDS: Mapping[str, type[Store]] = {
    store.kind: store for store in (PostgresStore, RedisStore, SqliteStore)
}


def kind_of(url: str) -> str:
    """``postgres``, ``redis`` or ``sqlite``, from a URL or such a name."""
    for kind in KINDS:
        if url.startswith(kind) or (kind == "redis" and url.startswith("rediss")):
            return kind
    raise ValueError(f"{url!r} is neither a store's URL nor one of {', '.join(KINDS)}")
