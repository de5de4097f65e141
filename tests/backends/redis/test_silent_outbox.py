"""A cluster of which one server is dead or frozen: an outbox goes on with the other queues."""

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

from forge_jobs import EnqueueRequest
from forge_jobs.clients.outbox.relay import OutboxReport
from forge_jobs.clock import ManualClock
from forge_jobs.errors import Unavailable
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import EnqueueOutcome, NewJob
from forge_jobs.storage.opening import open_storage
from tests.support import backends
from tests.support.factories import new_job
from tests.support.outboxes import Pair
from tests.support.shards import FAULTS, KEYS, NAMES, Shards, killed, node_of

pytestmark = [pytest.mark.anyio, pytest.mark.long]

REQUESTS = [EnqueueRequest("kind", {}, queue=name) for name in NAMES]
"""A request for each queue."""


@pytest.fixture
async def pair(shards: Shards, tmp_path: Path) -> AsyncGenerator[Pair]:
    """An outbox in a file, for the cluster."""
    await shards.storage.jobs.enqueue([new_job(queue=name) for name in NAMES])
    url = await backends.url_of("sqlite", tmp_path)
    async with await open_storage(url) as here:
        yield Pair("sqlite", tmp_path, here, shards.storage, url, "")


async def waiting_in(pair: Pair) -> list[JobId]:
    return [record.job_id for record in await pair.outbox().records(1_000)]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("part", ["queues", "fleet"])
async def test_records_for_a_silent_server_wait_alone(
    shards: Shards, pair: Pair, fault: str, part: str
) -> None:
    node = shards.node if part == "queues" else shards.fleet
    clock = ManualClock()
    outbox = pair.outbox(clock=clock)
    await pair.write(REQUESTS)
    assert await outbox.relay_once() == OutboxReport(30, 0)
    ids = await pair.write(REQUESTS * 3)
    lost = [
        job_id
        for job_id, queue in zip(ids, NAMES * 3, strict=True)
        if node_of(shards.cluster, KEYS.queue(queue)) is node
    ]
    assert lost
    clock.advance(10)  # The strikes are read again, which lie with the fleet.
    with shards.down(fault, node):
        assert await outbox.relay_once() == OutboxReport(90 - len(lost), 0)
        assert await waiting_in(pair) == lost
        # Written down later, and tried again meanwhile.
        await pair.write(REQUESTS)
        clock.advance(1)
        assert (await outbox.relay_once()).relayed == 30 - len(lost) // 3
    clock.advance(60)
    assert await outbox.relay_once() == OutboxReport(len(lost) * 4 // 3, 0)
    counts = await shards.storage.jobs.counts(NAMES)
    assert {each.by_status["pending"] for each in counts.values()} == {6}


async def test_jobs_that_need_a_silent_server_in_other_queues_delay_no_other(
    shards: Shards, pair: Pair
) -> None:
    clock = ManualClock()
    outbox = pair.outbox(clock=clock)
    healthy = EnqueueRequest("kind", {}, queue=shards.healthy[0])
    away = EnqueueRequest("kind", {}, queue=shards.lost[0])
    [parent] = await pair.write([away])
    assert (await outbox.relay_once()).relayed == 1
    located = new_job_id()
    while not shards.is_located_there(located):
        located = new_job_id()
    needing = [healthy.options(after=[parent]), healthy.options(id=located)]
    ids = await pair.write([*needing, *[healthy] * 5])
    with shards.down("killed"):
        assert await outbox.relay_once() == OutboxReport(5, 0)
        assert await waiting_in(pair) == ids[:2]
    clock.advance(60)
    assert await outbox.relay_once() == OutboxReport(2, 0)


@pytest.mark.parametrize("fault", FAULTS)
async def test_many_jobs_that_need_a_silent_server_for_their_ids_delay_others_for_a_moment(
    shards: Shards, pair: Pair, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    outbox = pair.outbox(clock=clock)
    healthy = [EnqueueRequest("kind", {}, queue=name) for name in shards.healthy]
    named = [each.options(id=new_job_id()) for each in [*healthy, *healthy]]
    ids = await pair.write([*named, *healthy])
    lost = [each for each in ids[: len(named)] if shards.is_located_there(each)]
    assert len(lost) > 2
    calls: list[int] = []
    enqueue = shards.storage.jobs.enqueue

    async def counted(requests: Sequence[NewJob]) -> list[EnqueueOutcome]:
        calls.append(len(requests))
        return await enqueue(requests)

    monkeypatch.setattr(shards.storage.jobs, "enqueue", counted)
    with shards.down(fault):
        assert (await outbox.relay_once()).relayed == len(ids) - len(lost)
        assert calls == [len(ids), len(ids) - len(lost)]
        clock.advance(1)
        assert (await outbox.relay_once()).relayed == 0
        assert await waiting_in(pair) == lost
        assert calls[2:] == [len(lost)]
    clock.advance(60)
    assert await outbox.relay_once() == OutboxReport(len(lost), 0)


async def test_a_cluster_that_is_down_as_a_whole_is_away(shards: Shards, pair: Pair) -> None:
    ids = await pair.write(REQUESTS)
    first, second, third = shards.cluster.nodes
    outbox = pair.outbox()
    with shards.down("killed", first), killed(second), killed(third):
        for _ in range(2):
            with pytest.raises(Unavailable):
                await outbox.relay_once()
    assert await waiting_in(pair) == ids
    assert await outbox.relay_once() == OutboxReport(30, 0)
