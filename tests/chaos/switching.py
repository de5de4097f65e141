"""Stores of which one server takes over from another, and a pooler that stands in between."""

import random
from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import ClassVar

import anyio

from forge_jobs.testing.ports import HOST
from forge_jobs.testing.servers import PgBouncer, PostgresServer
from forge_jobs.testing.standby import PostgresStandby
from tests.chaos.stores import ChaosStore
from tests.support.postgres import raw
from tests.support.replicated_cluster import ReplicatedCluster
from tests.support.sentinels import SentinelFleet
from tests.support.servers import a_postgres, a_standby
from tests.support.waiting import wait_until

_SAFE = {"min-replicas-to-write": "1"}


class SwitchedStore(ChaosStore):
    """A primary whose writes a replica has before they are acknowledged."""

    deeds: ClassVar[dict[str, int]] = {"switch_primary": 1}
    kills_pods = False

    @abstractmethod
    async def lose_primary(self, rng: random.Random) -> None:
        """SIGKILL a primary, which comes back as a replica. Return when writes are taken."""

    async def settle(self) -> None:
        """Wait until a further switch would lose nothing."""


class SentinelStore(SwitchedStore):
    """A primary and a replica with a sentinel, each write waits for the replica."""

    _fleet: SentinelFleet

    @property
    def url(self) -> str:
        return f"{self._fleet.url}&wait_replicas=1"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        with ExitStack() as stack:
            self._fleet = SentinelFleet(stack, safe=True)
            await self._fleet.replicated()
            yield

    async def lose_primary(self, rng: random.Random) -> None:
        await anyio.to_thread.run_sync(self._fleet.primary.kill)
        await wait_until(self._fleet.has_switched, description="the replica is the primary")
        await anyio.to_thread.run_sync(self._fleet.swap)
        await wait_until(self._fleet.takes_writes, description="the new primary takes writes")

    async def settle(self) -> None:
        # The sentinel asks the servers every ten seconds.
        await self._fleet.replicated()


class ClusterStore(SwitchedStore):
    """Three primaries with a replica each, each write waits for the replica."""

    _cluster: ReplicatedCluster

    @property
    def url(self) -> str:
        return f"{self._cluster.url}?wait_replicas=1"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        with ReplicatedCluster(durable=True, settings=_SAFE) as self._cluster:
            await self._cluster.join()
            yield

    async def lose_primary(self, rng: random.Random) -> None:
        killed = rng.choice(self._cluster.primaries())
        await anyio.to_thread.run_sync(killed.kill)
        await wait_until(self._cluster.is_served, description="all slots are served again")
        await anyio.to_thread.run_sync(killed.start)
        await self._cluster.whole()


class StandbyStore(SwitchedStore):
    """PostgreSQL with a standby, for which each commit waits. The URL names both servers."""

    _primary: PostgresServer
    _standby: PostgresStandby

    @property
    def url(self) -> str:
        ports = sorted((self._primary.port, self._standby.port))
        hosts = ",".join(f"{HOST}:{port}" for port in ports)
        return f"postgresql://postgres:{self._primary.password}@{hosts}/postgres"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._primary = a_postgres(durable=True)
        try:
            await anyio.to_thread.run_sync(self._primary.start)
            self._standby = a_standby(self._primary)
            await self._follow()
            yield
            self._standby.close()
        finally:
            self._primary.close()

    async def lose_primary(self, rng: random.Random) -> None:
        lost, self._primary = self._primary, self._standby
        await anyio.to_thread.run_sync(lost.kill)
        await anyio.to_thread.run_sync(self._standby.promote)
        port = lost.port
        lost.close()
        self._standby = a_standby(self._primary)
        self._standby.port = port
        await self._follow()

    async def _follow(self) -> None:
        """Start the standby, and return when commits wait for it."""
        # Else no commit would end while there is no standby, also not those that one needs.
        await self._set_names("")
        await anyio.to_thread.run_sync(self._standby.start)
        await self._set_names("*")
        await wait_until(self._is_synchronous, description="commits wait for the standby")

    async def _set_names(self, names: str) -> None:
        async with raw(self._primary.url) as connection:
            await connection.execute("SET synchronous_commit = local")
            await connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
            await connection.execute("SELECT pg_reload_conf()")

    async def _is_synchronous(self) -> bool:
        async with raw(self._primary.url) as connection:
            state = await connection.fetchval("SELECT sync_state FROM pg_stat_replication")
        return bool(state == "sync")


class PoolerStore(ChaosStore):
    """PostgreSQL behind PgBouncer in transaction mode. Wake-ups go past the pooler."""

    deeds: ClassVar[dict[str, int]] = {"restart_pooler": 1, "kill_pooler": 1}
    long_deed = "kill_pooler"
    kills_pods = False

    @property
    def url(self) -> str:
        return f"{self.pooler.url}?pgbouncer=1&direct={HOST}:{self._server.port}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        with a_postgres(durable=True) as self._server, PgBouncer(self._server) as self.pooler:
            yield
