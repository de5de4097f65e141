"""The stores, as durable as a deployment would have them, and what can be done to each."""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import anyio
import asyncpg
import redis

from forge_jobs import HandlerRegistry
from forge_jobs.testing.base import Server
from tests.chaos.pace import PODS, QUEUES
from tests.chaos.producer import MixedLoad, Producer
from tests.chaos.recorders import Recorder
from tests.support.proxy import Proxy, proxy
from tests.support.servers import a_postgres, a_redis


class ChaosStore(ABC):
    """The store of a run.

    :ivar ways: URLs for the pods. The producer takes the last one
    """

    deeds: ClassVar[dict[str, int]]
    """Possible deeds, and how often in comparison: names of the methods of ``StoreDeeds``."""

    kills_pods: ClassVar[bool] = True
    """True: pods are killed, stopped and frozen as well."""

    long_deed: ClassVar[str] = ""
    """The entry of ``deeds`` that takes a duration. Empty: none does."""

    queues: ClassVar[Mapping[str, int]] = QUEUES
    """The queues of the pods: name -> max_workers."""

    pods: ClassVar[int] = PODS

    load: ClassVar[type[Producer]] = MixedLoad

    has_limits: ClassVar[bool] = False
    """True: the pods' handlers are those with limits by key."""

    handlers: ClassVar[HandlerRegistry | None] = None
    """The handlers by which the producer prepares its jobs."""

    repeat_for: ClassVar[float] = 0.5
    """Seconds for which the producer's client repeats a call."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.proxies: list[Proxy] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start the store, and remove it afterwards."""
        yield

    def recorder(self) -> Recorder:
        """Return the recorder of limits in the store. By default, one that does nothing."""
        return Recorder(self.url)

    @property
    @abstractmethod
    def url(self) -> str:
        """Where nothing stands in between."""

    @property
    def ways(self) -> list[str]:
        return [between.url for between in self.proxies] or [self.url]


class SqliteStore(ChaosStore):
    """A file. Transactions belong to the processes, so killing pods is killing the store."""

    deeds: ClassVar[dict[str, int]] = {"lock": 2}
    long_deed = "lock"

    @property
    def url(self) -> str:
        return f"sqlite:///{self._folder}/jobs.db"

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Hold the lock, so that no other process can write."""
        path = self._folder / "jobs.db"
        with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.execute("ROLLBACK")


_END_OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
)


class ServerStore(ChaosStore):
    """A server behind two proxies, each of which half the pods go through."""

    server: Server
    deeds: ClassVar[dict[str, int]] = {
        "kill_store": 4,
        "restart_store": 2,
        "end_sessions": 2,
        "cut_replies": 2,
        "swallow_replies": 2,
        "blackhole": 1,
    }
    long_deed = "kill_store"

    @property
    def url(self) -> str:
        return self.server.url

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        with ExitStack() as stack:
            stack.callback(self.server.close)
            await anyio.to_thread.run_sync(self.server.start)
            self.proxies = [stack.enter_context(proxy(self.url)) for _ in range(2)]
            yield

    @abstractmethod
    async def end_sessions(self) -> None:
        """The server closes every client's connection."""

    @abstractmethod
    @asynccontextmanager
    async def refusing_logins(self) -> AsyncIterator[None]:
        """End all connections, and refuse the password of the URL."""
        yield


class PostgresStore(ServerStore):
    """PostgreSQL's own defaults: a commit survives a loss of power."""

    deeds: ClassVar[dict[str, int]] = {**ServerStore.deeds, "rotate_password": 2}

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.server = a_postgres(durable=True)

    async def end_sessions(self) -> None:
        connection = await asyncpg.connect(self.url)
        await connection.execute(_END_OTHERS)
        await connection.close()

    @asynccontextmanager
    async def refusing_logins(self) -> AsyncIterator[None]:
        connection = await asyncpg.connect(self.url)
        await connection.execute("ALTER ROLE postgres PASSWORD 'another'")
        await connection.execute(_END_OTHERS)
        yield
        await connection.execute(f"ALTER ROLE postgres PASSWORD '{self.server.password}'")
        await connection.close()


class RedisStore(ServerStore):
    """``appendonly yes`` and ``appendfsync always``: a reply survives a loss of power."""

    deeds: ClassVar[dict[str, int]] = {
        **ServerStore.deeds,
        "flush_scripts": 2,
        "rotate_password": 2,
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._redis = a_redis(durable=True)
        self.server = self._redis

    async def end_sessions(self) -> None:
        with redis.Redis.from_url(self.url, protocol=2) as client:
            self._end_all_but(client)

    @asynccontextmanager
    async def refusing_logins(self) -> AsyncIterator[None]:
        with redis.Redis.from_url(self.url, protocol=2) as client:
            client.config_set("requirepass", "another")
            self._end_all_but(client)
            yield
            client.config_set("requirepass", self.server.password)

    async def flush_scripts(self) -> None:
        """Make the server forget every script."""
        await self._command("SCRIPT", "FLUSH")

    async def memory_used(self) -> int:
        """Bytes."""
        told: dict[str, int] = await self._command("INFO", "memory")
        return told["used_memory"]

    async def limit_memory(self, limit: int) -> None:
        """Refuse writes that need more than so many bytes in all. 0: no limit."""
        await self._command("CONFIG", "SET", "maxmemory", str(limit))

    def _end_all_but(self, client: "redis.Redis") -> None:
        for kind in ("normal", "pubsub"):
            client.client_kill_filter(_type=kind, skipme=True)

    async def _command(self, *words: str) -> Any:
        return await anyio.to_thread.run_sync(partial(self._redis.command, *words))
