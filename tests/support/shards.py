"""A cluster of three servers of which one fails, and what of a store lies there."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from redis.crc import key_slot

from forge_jobs.model.ids import JobId
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.keys import Keys
from forge_jobs.testing.servers import ClusterNode, RedisCluster
from tests.support import servers
from tests.support.redis_databases import with_options
from tests.support.replicated_cluster import ReplicatedCluster
from tests.support.silent import frozen

NAMES = [f"queue-{number}" for number in range(30)]
KEYS = Keys("silent-part")


@contextmanager
def killed(node: ClusterNode) -> Iterator[None]:
    node.kill()
    try:
        yield
    finally:
        node.start()


@contextmanager
def stopped(node: ClusterNode) -> Iterator[None]:
    with frozen(node.process_id):
        yield


FAULTS: dict[str, Callable[[ClusterNode], AbstractContextManager[None]]] = {
    "killed": killed,
    "frozen": stopped,
}


def node_of(cluster: RedisCluster | ReplicatedCluster, key: str) -> ClusterNode:
    slot = key_slot(key.encode())
    return cluster.nodes[next(n for n in (2, 1, 0) if slot >= 16_384 * n // 3)]


class Shards:
    """The store, and the queues on the server that is to fail.

    :ivar lost: queues of that server
    :ivar healthy: the other queues
    """

    def __init__(self, cluster: RedisCluster, storage: Storage) -> None:
        self.cluster = cluster
        self.storage = storage
        self.fleet = node_of(cluster, KEYS.fleet)
        self.node = next(node for node in cluster.nodes if node is not self.fleet)
        self.lost = [name for name in NAMES if node_of(cluster, KEYS.queue(name)) is self.node]
        self.healthy = [name for name in NAMES if name not in self.lost]

    def is_located_there(self, job_id: str) -> bool:
        return node_of(self.cluster, KEYS.locators(JobId(job_id))) is self.node

    @contextmanager
    def down(self, fault: str, node: ClusterNode | None = None) -> Iterator[None]:
        try:
            with FAULTS[fault](node or self.node):
                yield
        finally:
            self.cluster.wait_until_up()


@contextmanager
def a_cluster() -> Iterator[RedisCluster]:
    """Yield a cluster in which a server that is down takes only its own slots along."""
    settings = {"cluster-require-full-coverage": "no"}
    with servers.a_redis_cluster(durable=True, settings=settings) as started:
        yield started


def url_of(cluster: RedisCluster) -> str:
    """Of the store."""
    return with_options(cluster.url, prefix=KEYS.prefix, timeout=4)
