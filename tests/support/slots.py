"""Slots of a cluster: which node has one, and how one is moved key by key."""

from forge_jobs.testing.servers import ClusterNode, RedisCluster


def owner(cluster: RedisCluster, slot: int) -> ClusterNode:
    """The node that serves the slot."""
    for first, last, (_, port, *_), *_ in cluster.nodes[0].command("CLUSTER", "SLOTS"):
        if first <= slot <= last:
            return next(node for node in cluster.nodes if node.port == port)
    raise AssertionError("nobody serves the slot")


def identity(node: ClusterNode) -> str:
    return str(node.command("CLUSTER", "MYID"))


class Move:
    """A slot on the way from one node to another, key by key."""

    def __init__(self, cluster: RedisCluster, slot: int) -> None:
        self._nodes = cluster.nodes
        self._slot = slot
        self.source = owner(cluster, slot)
        self.target = next(node for node in cluster.nodes if node is not self.source)

    def begin(self) -> None:
        self.target.command("CLUSTER", "SETSLOT", self._slot, "IMPORTING", identity(self.source))
        self.source.command("CLUSTER", "SETSLOT", self._slot, "MIGRATING", identity(self.target))

    def move_keys(self, count: int) -> None:
        for key in self.source.command("CLUSTER", "GETKEYSINSLOT", self._slot, count):
            password = self.target.password
            address = ("127.0.0.1", self.target.port, key, 0, 5000)
            self.source.command("MIGRATE", *address, "AUTH", password)

    def end(self) -> None:
        self.move_keys(1000)
        for node in (self.target, self.source, *self._nodes):
            node.command("CLUSTER", "SETSLOT", self._slot, "NODE", identity(self.target))
