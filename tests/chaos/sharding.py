"""A cluster that serves many queues, of which one shard is down."""

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import anyio
from redis.crc import key_slot

from forge_jobs import EnqueueRequest
from forge_jobs.storage.redis.keys import Keys
from forge_jobs.testing.servers import ClusterNode
from tests.chaos.pace import pause
from tests.chaos.producer import Producer
from tests.chaos.record import Sending, now_ns
from tests.chaos.stores import ChaosStore
from tests.support.redis_databases import with_options
from tests.support.replicated_cluster import ReplicatedCluster
from tests.support.waiting import wait_until

_PODS = 3
_QUEUES = {f"queue-{number}": _PODS for number in range(30)}

_TAKES = 0.5
"""Seconds of each job. So the throughput is what the slots allow, not what the machine can do,
and is lower in a queue that is not served all the time."""

_BACKLOG = 30
_BATCH = 10

_KEYS = Keys("chaos")
_LIMITS = {"timeout": 2, "wait_timeout": 0.2, "pool_size": 40}
"""The defaults are for default leases: a quick lease less the margin ends before half of 5 seconds,
for which a beat waits for a frozen server.
"""

_ONLY_ITS_OWN = {"cluster-require-full-coverage": "no"}
_HOLD = "cluster-replica-no-failover"


class EvenLoad(Producer):
    """As many jobs waiting in one queue as in any other, under ids of the client's making.

    An id of the caller's may need a shard that is down. A call to such a shard is repeated until
    the shard is back, so every outcome becomes known.
    """

    async def send_while(self, is_wanted: Callable[[], bool]) -> None:
        async with anyio.create_task_group() as group:
            for queue in _QUEUES:
                group.start_soon(self._keep_up, queue, is_wanted)

    async def _keep_up(self, queue: str, is_wanted: Callable[[], bool]) -> None:
        waiting: set[str] = set()
        request = EnqueueRequest(
            "ledger.work",
            {"ledger": self._path, "seconds": _TAKES},
            queue=queue,
            max_attempts=None,
        )
        while is_wanted():
            waiting -= self._ledger.ended()
            if len(waiting) > _BACKLOG:
                await pause(0.02)
                continue
            sent = now_ns()
            outcomes = await self._client.enqueue_many([request] * _BATCH)
            ids = [outcome.job_id for outcome in outcomes]
            self._note("acked", ids)
            for job_id in ids:
                self._record.sendings[job_id] = Sending(sent, now_ns(), queue)
            waiting.update(ids)


@dataclass(frozen=True)
class Shard:
    """A primary, a replica, and the queues of the shard."""

    primary: ClusterNode
    replica: ClusterNode
    queues: frozenset[str]

    def hold_back(self) -> None:
        """Do not let the replica take over."""
        self.replica.command("CONFIG SET", _HOLD, "yes")

    async def replace(self) -> None:
        """Start a failover, and wait until the replica is the primary."""
        await anyio.to_thread.run_sync(partial(self.replica.command, "CONFIG SET", _HOLD, "no"))
        await wait_until(self._is_replaced, description="the replica is a primary")

    async def _is_replaced(self) -> bool:
        role = await anyio.to_thread.run_sync(partial(self.replica.command, "ROLE"))
        return bool(role[0] == "master")


class ShardedStore(ChaosStore):
    """Three primaries with a replica each. A server that is down takes only its own slots along."""

    deeds: ClassVar[dict[str, int]] = {
        "kill_shard": 1,
        "freeze_shard": 1,
        "kill_fleet_shard": 1,
        "freeze_fleet_shard": 1,
    }
    long_deed = "kill_shard"
    kills_pods = False
    queues: ClassVar[Mapping[str, int]] = _QUEUES
    pods = _PODS
    load = EvenLoad
    repeat_for = 150.0

    _cluster: ReplicatedCluster

    @property
    def url(self) -> str:
        return with_options(self._cluster.url, prefix=_KEYS.prefix, wait_replicas=1, **_LIMITS)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        with ReplicatedCluster(durable=True, settings=_ONLY_ITS_OWN) as self._cluster:
            await self._cluster.join()
            yield

    async def a_shard(self, rng: random.Random, *, of_fleet: bool) -> Shard:
        """The one with the fleet's own records, or any other."""
        owner = await anyio.to_thread.run_sync(self._owner_of, _KEYS.fleet)
        if not of_fleet:
            others = [node for node in self._cluster.primaries() if node is not owner]
            owner = rng.choice(others)
        replica = await anyio.to_thread.run_sync(self._cluster.replica_of, owner)
        queues = [name for name in _QUEUES if self._owner_of(_KEYS.queue(name)) is owner]
        return Shard(owner, replica, frozenset(queues))

    def _owner_of(self, key: str) -> ClusterNode:
        return self._cluster.owner_of(key_slot(key.encode()))

    async def settle(self) -> None:
        """Wait until each primary has a replica in step."""
        await self._cluster.whole()
