"""A Redis cluster of three primaries, each with a replica that takes over when the primary dies."""

from collections.abc import Mapping
from functools import partial
from typing import Self

from redis.exceptions import RedisError

from forge_jobs.testing.ports import HOST
from forge_jobs.testing.servers import ClusterNode, RedisCluster
from tests.support import servers
from tests.support.waiting import wait_until

_FAST = {
    "cluster-node-timeout": "2000",
    "cluster-replica-validity-factor": "0",
    "repl-diskless-sync-delay": "0",
}
"""A dead primary is given up after two seconds, any replica may follow, and a new one at once."""


class ReplicatedCluster:
    """Six nodes. ``nodes[n]`` and ``nodes[n + 3]`` form one shard at the start.

    :param durable: as for :class:`RedisServer`
    :param settings: further settings of every node
    """

    def __init__(self, *, durable: bool = False, settings: Mapping[str, str] | None = None) -> None:
        options = {**_FAST, **(settings or {})}
        self._cluster: RedisCluster = servers.a_redis_cluster(durable=durable, settings=options)
        first = self._cluster.nodes[0]
        self._replicas = [
            ClusterNode(
                program=first._program,
                durable=durable,
                settings=options,
                password=first.password,
            )
            for _ in range(3)
        ]

    def __enter__(self) -> Self:
        try:
            self._cluster.start()
            for node in self._replicas:
                node.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """End the nodes and remove their data."""
        for node in self._replicas:
            node.close()
        self._cluster.close()

    @property
    def nodes(self) -> list[ClusterNode]:
        """The three first primaries, then the three first replicas."""
        return [*self._cluster.nodes, *self._replicas]

    @property
    def url(self) -> str:
        """All six nodes and the password."""
        addresses = ",".join(f"{HOST}:{node.port}" for node in self.nodes)
        return f"redis+cluster://:{self.nodes[0].password}@{addresses}"

    async def join(self) -> None:
        """Make the three further nodes replicas, and return when every replica is in step."""
        first = self.nodes[0]
        for node in self._replicas:
            first.command("CLUSTER MEET", HOST, node.port, node.bus_port)
        for primary, replica in zip(self._cluster.nodes, self._replicas, strict=True):
            identity = str(primary.command("CLUSTER MYID"))
            await wait_until(
                partial(_knows, replica, identity), description="the replica knows its primary"
            )
            replica.command("CLUSTER REPLICATE", identity)
        await self.whole()

    def owner_of(self, slot: int) -> ClusterNode:
        """Return the primary that serves a slot. All nodes must run."""
        shards = self.nodes[0].command("CLUSTER SLOTS")
        port = next(node[1] for first, last, node, *_ in shards if first <= slot <= last)
        return self._at(port)

    def replica_of(self, primary: ClusterNode) -> ClusterNode:
        """The replica that follows a primary that runs."""
        _, _, [[_, port, _]] = primary.command("ROLE")
        return self._at(port)

    def _at(self, port: int | str) -> ClusterNode:
        return next(node for node in self.nodes if node.port == int(port))

    def primaries(self) -> list[ClusterNode]:
        """The running nodes that say they are primaries."""
        return [node for node in self.nodes if _role(node) == "master"]

    def is_served(self) -> bool:
        """Return whether every running node says that all slots are served, by three primaries."""
        running = [node for node in self.nodes if _role(node)]
        return len(self.primaries()) == 3 and all(_is_ok(node) for node in running)

    async def whole(self) -> None:
        """Wait until each of three primaries has a replica in step, and all nodes agree on that."""
        await wait_until(self._is_whole, description="every shard has a replica", timeout=100)

    def _is_whole(self) -> bool:
        primaries = self.primaries()
        return (
            len(primaries) == 3
            and all(_has_replica(node) for node in primaries)
            and all(_sees_three(node) for node in self.nodes)
        )


def _knows(node: ClusterNode, identity: str) -> bool:
    return identity in str(node.command("CLUSTER NODES"))


def _role(node: ClusterNode) -> str:
    try:
        return str(node.command("ROLE")[0])
    except RedisError:
        return ""


def _has_replica(node: ClusterNode) -> bool:
    try:
        told = node.command("INFO", "replication")
    except RedisError:
        return False
    return str(told.get("slave0", {}).get("state")) == "online"


def _is_ok(node: ClusterNode) -> bool:
    told: dict[str, str] = node.command("CLUSTER INFO")
    return told["cluster_state"] == "ok"


def _sees_three(node: ClusterNode) -> bool:
    try:
        told = node.command("CLUSTER INFO")
        shards = node.command("CLUSTER SLOTS")
    except RedisError:
        return False
    return told["cluster_state"] == "ok" and all(len(shard) >= 4 for shard in shards)
