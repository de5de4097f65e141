"""A cluster of which one server is dead or frozen: letters from and for its queues wait there."""

import pytest

from forge_jobs.model.letters import DEAD_LETTER_KIND
from forge_jobs.model.queues import QueueChange
from forge_jobs.runtime.passes.bisecting import BisectingSender
from forge_jobs.runtime.passes.letters import LetterRelay, RelayReport
from tests.support.factories import DAY, claim_one, dead, finish, new_job, register
from tests.support.shards import FAULTS, NAMES, Shards

pytestmark = [pytest.mark.anyio, pytest.mark.long]


@pytest.fixture
async def shards(shards: Shards) -> Shards:
    """Put a job into every queue."""
    await shards.storage.jobs.enqueue([new_job(queue=name) for name in NAMES])
    return shards


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
