"""Wake-ups in a cluster: each stays with the server of its queue, and waiters there hear it."""

import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import pytest
from redis.crc import key_slot

from forge_jobs.model.transitions import Demand
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.driver import messages
from forge_jobs.testing.servers import ClusterNode, RedisCluster
from tests.backends.redis.test_rights import OF_A_CLUSTER, documented
from tests.support.factories import KIND, new_job, register
from tests.support.redis_databases import KEYS, with_options
from tests.support.shards import NAMES, a_cluster, killed, stopped
from tests.support.slots import Move, owner
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

LONG = timedelta(seconds=20)
SHORT = timedelta(milliseconds=100)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    """The module's own, whose servers the tests count, kill and freeze."""
    with a_cluster() as started:
        yield started


@pytest.fixture
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "PING_AFTER_S", 0.2)


def url_of(cluster: RedisCluster) -> str:
    return with_options(cluster.url, prefix=KEYS.prefix)


def as_user(cluster: RedisCluster, name: str, *rules: str) -> str:
    """The store's URL for a user with the documented rights and these rules."""
    for node in cluster.nodes:
        allowed = (*documented(KEYS.prefix), *OF_A_CLUSTER, *rules)
        node.command("ACL", "SETUSER", name, "reset", *allowed)
    return url_of(cluster).replace(f":{cluster.nodes[0].password}@", f"{name}:password@")


@pytest.fixture
async def storage(cluster: RedisCluster) -> AsyncGenerator[Storage]:
    """A store without a record, of a user with all rights."""
    for node in cluster.nodes:
        node.command("FLUSHALL")
    async with await open_storage(url_of(cluster)) as made:
        yield made


def one_per_server(cluster: RedisCluster) -> dict[str, ClusterNode]:
    """Return three queues, each on a server of its own."""
    found: dict[int, tuple[str, ClusterNode]] = {}
    for name in NAMES:
        node = owner(cluster, key_slot(KEYS.queue(name).encode()))
        found.setdefault(node.port, (name, node))
    assert len(found) == 3
    return dict(found.values())


async def find_nothing(storage: Storage, *queues: str) -> None:
    """Claim as a pod does whose worker waits, so that the store knows who waits."""
    lease = await register(storage)
    demand = Demand(worker_ids=("w",), limit=1, kinds=frozenset({KIND}))
    for queue in queues:
        assert not (await storage.jobs.exchange(queue, [], demand, lease)).claimed


@asynccontextmanager
async def waiting(storage: Storage, *queues: str) -> AsyncGenerator[Storage]:
    """A bundle that has heard of all that was before."""
    async with await storage.reopen() as waiter:
        while await waiter.jobs.wait_for_work(frozenset(queues), SHORT):
            pass
        assert waiter.health().wakes
        yield waiter


async def enqueue_in(storage: Storage, queue: str) -> None:
    await storage.jobs.enqueue([new_job(queue=queue)])


async def heard_by(waiter: Storage, *queues: str) -> frozenset[str]:
    return (await waiter.jobs.wait_for_work(frozenset(queues), LONG)).queues


def calls(node: ClusterNode, command: str) -> int:
    found = node.command("INFO", "commandstats").get(f"cmdstat_{command}", {})
    return int(found.get("calls", 0))


def from_others(cluster: RedisCluster) -> int:
    """Return how many messages of channels servers have got from other servers."""
    told = [
        dict(line.split(":") for line in str(node.command("CLUSTER", "INFO")).split())
        for node in cluster.nodes
    ]
    kinds = ("publish", "publishshard")
    return sum(
        int(figures.get(f"cluster_stats_messages_{kind}_received", 0))
        for figures in told
        for kind in kinds
    )


async def test_a_wake_up_of_a_queue_is_sent_to_no_other_server(
    cluster: RedisCluster, storage: Storage
) -> None:
    queues = one_per_server(cluster)
    for queue in queues:
        await enqueue_in(storage, queue)
    async with waiting(storage, *queues) as waiter:
        before = from_others(cluster)
        for node in cluster.nodes:
            node.command("CONFIG", "RESETSTAT")
        for _ in range(20):
            for queue in queues:
                await enqueue_in(storage, queue)
                assert await heard_by(waiter, *queues) == {queue}
        assert [calls(node, "spublish") for node in queues.values()] == [20, 20, 20]
        assert [calls(node, "publish") for node in queues.values()] == [0, 0, 0]
        assert from_others(cluster) == before
        # As every wake-up of a queue once was.
        cluster.nodes[0].command("PUBLISH", KEYS.channel, "beat")
        await wait_until(lambda: from_others(cluster) == before + 2, description="both have it")


async def test_a_program_of_an_older_release_is_heard(
    cluster: RedisCluster, storage: Storage
) -> None:
    queues = one_per_server(cluster)
    async with waiting(storage, *queues) as waiter:
        for queue in queues:
            # From any server, to all of them.
            cluster.nodes[0].command("PUBLISH", KEYS.channel_of(queue), "")
            assert await heard_by(waiter, *queues) == {queue}


@pytest.mark.parametrize("missing", ["spublish", "ssubscribe"])
async def test_a_user_without_the_rights_publishes_and_hears_by_way_of_all_servers(
    cluster: RedisCluster, storage: Storage, missing: str
) -> None:
    queues = one_per_server(cluster)
    url = as_user(cluster, f"no-{missing}", f"-{missing}")
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(await open_storage(url))
        with_all = await stack.enter_async_context(waiting(storage, *queues))
        without = await stack.enter_async_context(waiting(other, *queues))
        for node in cluster.nodes:
            node.command("CONFIG", "RESETSTAT")
        for queue in queues:
            await enqueue_in(other, queue)
            assert await heard_by(with_all, *queues) == {queue}
            assert await heard_by(without, *queues) == {queue}
        assert sum(calls(node, "publish") for node in cluster.nodes) >= 3
        assert sum(calls(node, "spublish") for node in cluster.nodes) == 0


async def test_a_slot_that_has_moved_is_heard_at_its_new_server(
    cluster: RedisCluster, storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    queues = one_per_server(cluster)
    moved = next(iter(queues))
    slot = key_slot(KEYS.queue(moved).encode())
    async with waiting(storage, *queues) as waiter:
        for _ in range(2):
            move = Move(cluster, slot)
            move.begin()
            move.end()
            # Something may have been missed, of the server's other queues as well.
            await heard_by(waiter, moved)
            while await waiter.jobs.wait_for_work(frozenset(queues), SHORT):
                pass
            await enqueue_in(storage, moved)
            assert moved in await heard_by(waiter, moved)
    told = [each for each in caplog.messages if "from a server of the cluster" in each]
    assert told
    assert all("the cluster has moved a slot" in each for each in told)


@pytest.mark.usefixtures("_hurried")
@pytest.mark.parametrize(
    "fault",
    [pytest.param(killed, id="killed"), pytest.param(stopped, id="frozen", marks=pytest.mark.long)],
)
async def test_a_server_that_is_lost_takes_along_its_own_queues_and_comes_back(
    cluster: RedisCluster, storage: Storage, fault: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "forge_jobs")
    queues = one_per_server(cluster)
    fleet = owner(cluster, key_slot(KEYS.fleet.encode()))
    lost = next(queue for queue, node in queues.items() if node is not fleet)
    others = [queue for queue in queues if queue != lost]
    async with waiting(storage, *queues) as waiter:
        # Queues that are there, so that nothing else wakes.
        for queue in others:
            await enqueue_in(storage, queue)
            assert await heard_by(waiter, *queues) == {queue}
        with fault(queues[lost]):  # type: ignore[operator]
            await wait_until(
                lambda: any("from a server of the cluster" in each for each in caplog.messages),
                description="the loss is logged",
            )
            for _ in range(3):
                for queue in others:
                    await enqueue_in(storage, queue)
                    assert queue in await heard_by(waiter, *others)
        cluster.wait_until_up()
        assert lost in await heard_by(waiter, lost)
        await wait_until(
            lambda: any("from every server of the" in each for each in caplog.messages),
            description="the return is logged",
        )
        while await waiter.jobs.wait_for_work(frozenset(queues), SHORT):
            pass
        await enqueue_in(storage, lost)
        assert await heard_by(waiter, *queues) == {lost}


async def test_a_message_of_somebody_elses_is_passed_over(
    cluster: RedisCluster, storage: Storage
) -> None:
    [queue, *_] = queues = one_per_server(cluster)
    async with waiting(storage, *queues) as waiter:
        for text in ("\xff\xfe", "", "queue"):
            queues[queue].command("SPUBLISH", KEYS.channel_of(queue), text)
            assert await heard_by(waiter, *queues) == {queue}
        assert waiter.health().silences == 0


async def test_who_has_no_queue_on_a_server_has_no_connection_there(
    cluster: RedisCluster, storage: Storage
) -> None:
    [queue, *_] = queues = one_per_server(cluster)
    async with waiting(storage, queue):
        heard = {name: node.command("PUBSUB", "SHARDCHANNELS") for name, node in queues.items()}
        assert heard.pop(queue) == [KEYS.channel_of(queue)]
        assert list(heard.values()) == [[], []]
