"""A cluster of which one server is dead or frozen: letters from and for its queues wait there."""

from collections.abc import AsyncGenerator, Iterator

import pytest

from forge_jobs.model.letters import DEAD_LETTER_KIND
from forge_jobs.model.queues import QueueChange
from forge_jobs.runtime.passes.bisecting import BisectingSender
from forge_jobs.runtime.passes.letters import LetterRelay, RelayReport
from forge_jobs.storage.opening import open_storage
from forge_jobs.testing.servers import RedisCluster
from tests.support.factories import DAY, claim_one, dead, finish, new_job, register
from tests.support.shards import FAULTS, NAMES, Shards, a_cluster, url_of

pytestmark = [pytest.mark.anyio, pytest.mark.long]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with a_cluster() as started:
        yield started


@pytest.fixture
async def shards(cluster: RedisCluster) -> AsyncGenerator[Shards]:
    for node in cluster.nodes:
        node.command("FLUSHALL")
    async with await open_storage(url_of(cluster)) as storage:
        await storage.jobs.enqueue([new_job(queue=name) for name in NAMES])
        yield Shards(cluster, storage)


@pytest.mark.parametrize("fault", FAULTS)
async def test_letters_wait_for_a_silent_server_and_keep_no_other_waiting(
    shards: Shards, fault: str
) -> None:
    storage = shards.storage
    lease = await register(storage, queues=NAMES, lease_for=DAY)
    ways = {
        shards.healthy[0]: shards.lost[0],
        shards.healthy[1]: shards.healthy[0],
        shards.lost[1]: shards.healthy[2],
    }
    for queue, to in ways.items():
        await storage.config.set_queue(queue, QueueChange(dead_letter=to))
        assert await finish(storage, await claim_one(storage, lease, queue=queue), dead())
    relay = LetterRelay(storage.jobs, storage.jobs, BisectingSender("the letter"))

    with shards.down(fault):
        assert await relay.relay_once() == RelayReport(1, (shards.lost[0],))
        assert await _letters_in(shards, shards.healthy[0]) == 1
        # The one of the lost queue is not seen, and the one for the lost queue tried again.
        assert await relay.relay_once() == RelayReport(0, (shards.lost[0],))

    assert await relay.relay_once() == RelayReport(2)
    assert await relay.relay_once() == RelayReport(0)
    for to in ways.values():
        assert await _letters_in(shards, to) == 1


async def _letters_in(shards: Shards, queue: str) -> int:
    counts = await shards.storage.procs.due_kinds([queue])
    return counts[queue].get(DEAD_LETTER_KIND, 0)
