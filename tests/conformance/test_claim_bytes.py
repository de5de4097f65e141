"""Claims are bounded in bytes, so that large payloads come over a thin line too."""

from datetime import timedelta

import pytest

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import CLAIM_BYTES, Demand, Exchange
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    KIND,
    QUEUE,
    claim,
    counters,
    crashed,
    enqueue_one,
    get_job,
    new_job,
    register,
    revive,
)

pytestmark = pytest.mark.anyio

SIZE = 1_000


async def large_jobs(storage: Storage, count: int, **fields: object) -> list[JobId]:
    payload = '{"text": "%s"}' % ("x" * (SIZE - 12))
    assert len(payload) == SIZE
    requests = [new_job(payload=payload, **fields) for _ in range(count)]
    await storage.jobs.enqueue(requests)
    return [request.id for request in requests]


async def ask(
    storage: Storage,
    lease: PodLease,
    max_bytes: int,
    *,
    limit: int = 10,
    kinds: frozenset[str] = frozenset({KIND}),
) -> Exchange:
    workers = tuple(f"w{number}" for number in range(limit))
    demand = Demand(worker_ids=workers, limit=limit, kinds=kinds, max_bytes=max_bytes)
    return await storage.jobs.exchange(QUEUE, [], demand, lease)


def ids_of(exchange: Exchange) -> list[JobId]:
    return [each.claim.job_id for each in exchange.claimed]


async def test_a_claim_brings_as_many_as_fit_and_says_that_there_is_more(
    storage: Storage, lease: PodLease
) -> None:
    ids = await large_jobs(storage, 5)
    first = await ask(storage, lease, 2 * SIZE)
    assert (ids_of(first), first.next_due_in) == (ids[:2], timedelta(0))
    second = await ask(storage, lease, 3 * SIZE - 1)
    assert (ids_of(second), second.next_due_in) == (ids[2:4], timedelta(0))
    third = await ask(storage, lease, 10 * SIZE)
    assert (ids_of(third), third.next_due_in) == (ids[4:], None)
    assert (await counters(storage))["claimed"] == 5


async def test_one_job_comes_whatever_its_size(storage: Storage, lease: PodLease) -> None:
    ids = await large_jobs(storage, 2)
    assert ids_of(await ask(storage, lease, 1)) == ids[:1]
    assert (await get_job(storage, ids[1])).status is JobStatus.PENDING
    assert ids_of(await ask(storage, lease, 1)) == ids[1:]


async def test_bytes_are_counted_not_characters(storage: Storage, lease: PodLease) -> None:
    payload = '{"text": "%s"}' % ("\u00e9" * 100)
    requests = [new_job(payload=payload) for _ in range(2)]
    await storage.jobs.enqueue(requests)
    assert len(ids_of(await ask(storage, lease, 2 * len(payload)))) == 1


async def test_no_order_is_lost_over_what_does_not_fit(storage: Storage, lease: PodLease) -> None:
    large = await large_jobs(storage, 2, priority=-1)
    small = await enqueue_one(storage, priority=1)
    assert ids_of(await ask(storage, lease, SIZE + 10)) == large[:1]
    assert ids_of(await ask(storage, lease, SIZE + 10)) == [large[1], small]


async def test_jobs_of_other_kinds_take_no_room(storage: Storage, lease: PodLease) -> None:
    await register(storage, kinds=["other"])
    await large_jobs(storage, 5, kind="other")
    ids = await large_jobs(storage, 3)
    for wanted in (ids[:2], ids[2:]):
        assert ids_of(await ask(storage, lease, 2 * SIZE)) == wanted


async def test_several_kinds_are_bounded_together(storage: Storage) -> None:
    kinds = frozenset({"a", "b", "c"})
    lease = await register(storage, kinds=sorted(kinds))
    await register(storage, kinds=["other"])
    await enqueue_one(storage, kind="other")
    ids: list[JobId] = []
    for _ in range(3):
        for kind in "abc":
            ids += await large_jobs(storage, 1, kind=kind)
    for start in range(0, 9, 2):
        exchange = await ask(storage, lease, 2 * SIZE, kinds=kinds)
        assert ids_of(exchange) == ids[start : start + 2]


async def test_a_job_that_needs_a_worker_takes_no_room_of_those_held_ahead(
    storage: Storage, lease: PodLease
) -> None:
    [risky] = await large_jobs(storage, 1)
    [claimed] = await claim(storage, lease)
    assert await revive(storage, claimed, crashed(), stale_after=timedelta(0))
    ids = await large_jobs(storage, 2)
    demand = Demand(worker_ids=(), limit=10, kinds=frozenset({KIND}), max_bytes=SIZE)
    assert ids_of(await storage.jobs.exchange(QUEUE, [], demand, lease)) == ids[:1]
    assert (await get_job(storage, risky)).status is not JobStatus.IN_PROGRESS


async def test_a_claim_is_bounded_by_itself(storage: Storage, lease: PodLease) -> None:
    payload = '{"text": "%s"}' % ("x" * (CLAIM_BYTES // 5))
    await storage.jobs.enqueue([new_job(payload=payload) for _ in range(6)])
    assert len(await claim(storage, lease, limit=6)) == 4
