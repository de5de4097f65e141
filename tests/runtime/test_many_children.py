"""Hand-overs of many children, of deep chains, and by several pods at once."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, Cause, JobStatus, NewJob
from forge_jobs.model.transitions import Delivery
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    claim,
    counters,
    dead,
    done,
    enqueue_one,
    finish,
    new_job,
    only,
    register,
    run_one,
)

pytestmark = pytest.mark.anyio

MANY, LEVELS = 10_000, 1_000
ENOUGH = timedelta(minutes=9)
"""For a pass on a machine that does much else."""


async def _store(storage: Storage, requests: list[NewJob]) -> None:
    for first in range(0, len(requests), 500):
        await storage.jobs.enqueue(requests[first : first + 500])


async def _statuses(storage: Storage, ids: list[JobId]) -> Counter[JobStatus]:
    found: Counter[JobStatus] = Counter()
    for first in range(0, len(ids), 1_000):
        jobs = await storage.jobs.get(ids[first : first + 1_000])
        found.update(job.status for job in jobs.values())
    return found


async def test_a_batch_tells_children_of_many_queues_due_and_late_held_and_cancelled(
    manual_storage: Storage,
) -> None:
    lease = await register(manual_storage)
    parents = [await enqueue_one(manual_storage) for _ in range(3)]
    edges = {
        "waits": tuple(After(each, "continue") for each in parents),
        "free": (After(parents[0], "continue"),),
        "gone": (After(parents[0], "continue"), After(parents[1])),
        "held": (After(parents[0], "hold"), After(parents[1], "continue")),
    }
    children = {
        name: [new_job(queue=f"q{number % 7}", after=after) for number in range(30)]
        for name, after in edges.items()
    }
    await manual_storage.jobs.enqueue([job for jobs in children.values() for job in jobs])
    for _ in range(2):
        await run_one(manual_storage, lease, dead())

    assert await hand_over_once(manual_storage.jobs) == 7 * 30

    wanted = {
        "waits": JobStatus.BLOCKED,
        "free": JobStatus.PENDING,
        "gone": JobStatus.CANCELLED,
        "held": JobStatus.BLOCKED,
    }
    for name, jobs in children.items():
        ids = [job.id for job in jobs]
        assert await _statuses(manual_storage, ids) == {wanted[name]: 30}, name
    counted: Counter[str] = Counter()
    for number in range(7):
        counted.update(await counters(manual_storage, f"q{number}"))
    assert (counted["parents_settled"], counted["parent_failed"]) == (30, 30)


async def test_two_parents_that_end_at_once_make_their_child_due_once(
    manual_storage: Storage,
) -> None:
    lease = await register(manual_storage)
    for _ in range(5):
        parents = [await enqueue_one(manual_storage) for _ in range(2)]
        child = await enqueue_one(
            manual_storage, queue="after", after=tuple(After(each) for each in parents)
        )
        claimed = await claim(manual_storage, lease, limit=2)
        ends = [finish(manual_storage, each, done()) for each in claimed]
        assert await asyncio.gather(*ends) == [True, True]
        found = await manual_storage.jobs.handovers(10)
        assert {each.parent_id for each in found} == set(parents)

        told = [manual_storage.jobs.deliver([Delivery(each, "settle")]) for each in found * 2]
        applied = sum(await asyncio.gather(*told))
        # A pod that met the other's lock leaves the handover to the next pass.
        applied += await hand_over_once(manual_storage.jobs)

        assert applied == 2
        assert await manual_storage.jobs.handovers(10) == []
        assert await _statuses(manual_storage, [child]) == {JobStatus.PENDING: 1}
    assert (await counters(manual_storage, "after"))["parents_settled"] == 5


@pytest.mark.long
async def test_ten_thousand_children_of_one_parent_are_told_once_by_three_pods(
    manual_storage: Storage,
) -> None:
    lease = await register(manual_storage)
    parent = await enqueue_one(manual_storage)
    children = [new_job(queue=f"q{number % 20}", after=(After(parent),)) for number in range(MANY)]
    await _store(manual_storage, children)
    await run_one(manual_storage, lease, done())

    passes = (hand_over_once(manual_storage.jobs, budget=ENOUGH) for _ in range(3))
    applied = sum(await asyncio.gather(*passes)) + await hand_over_once(
        manual_storage.jobs, budget=ENOUGH
    )

    assert applied == MANY
    ids = [child.id for child in children]
    assert await _statuses(manual_storage, ids) == {JobStatus.PENDING: MANY}
    counted = [await counters(manual_storage, f"q{number}") for number in range(20)]
    assert sum(each["parents_settled"] for each in counted) == MANY


@pytest.mark.long
async def test_ten_thousand_parents_of_one_child_are_settled(manual_storage: Storage) -> None:
    parents = [new_job() for _ in range(MANY)]
    await _store(manual_storage, parents)
    child = await enqueue_one(
        manual_storage, after=tuple(After(each.id, "continue") for each in parents)
    )
    for first in range(0, MANY, 1_000):
        assert await _statuses(manual_storage, [child]) == {JobStatus.BLOCKED: 1}
        ids = tuple(each.id for each in parents[first : first + 1_000])
        await manual_storage.jobs.cancel(only(*ids), limit=1_000)
        assert await hand_over_once(manual_storage.jobs) == 1_000
    assert await _statuses(manual_storage, [child]) == {JobStatus.PENDING: 1}


@pytest.mark.long
async def test_a_dead_parent_cancels_a_thousand_generations_in_one_pass(
    manual_storage: Storage,
) -> None:
    lease = await register(manual_storage)
    chain = [new_job()]
    for number in range(LEVELS):
        chain.append(new_job(queue=f"q{number % 3}", after=(After(chain[-1].id),)))
    await _store(manual_storage, chain)
    await run_one(manual_storage, lease, dead())

    assert await hand_over_once(manual_storage.jobs, budget=ENOUGH) == LEVELS

    ids = [each.id for each in chain[1:]]
    assert await _statuses(manual_storage, ids) == {JobStatus.CANCELLED: LEVELS}
    which = JobFilter(causes=(Cause.PARENT_FAILED,))
    assert (await manual_storage.jobs.count(which)).number == LEVELS
