"""The cost of a claim among many keys of a limit, in steps of SQLite."""

from collections.abc import Sequence
from typing import Any

import pytest

from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Demand, Finalization
from forge_jobs.storage.protocols import Storage
from tests.support.asked import handed_to_the_driver
from tests.support.factories import DAY, KIND, QUEUE, claim, done, new_job, register
from tests.support.sqlite_steps import steps_of_sqlite

pytestmark = pytest.mark.anyio

NAME, SIZE, MANY = "tests.host", 20, 1_000


@pytest.fixture
async def lease(storage: Storage) -> PodLease:
    return await register(storage, lease_for=DAY)


async def put(storage: Storage, keys: Sequence[str]) -> None:
    """Enqueue a job for each key."""
    for first in range(0, len(keys), 200):
        some = keys[first : first + 200]
        await storage.jobs.enqueue([new_job(limit_name=NAME, limit_key=key) for key in some])


async def cost(storage: Storage, lease: PodLease) -> int:
    """Return the hundreds of steps of a claim that finds all it asks for."""
    with steps_of_sqlite() as steps:
        assert len(await claim(storage, lease, limit=SIZE)) == SIZE
    return steps[0]


async def test_a_claim_among_many_keys_costs_as_one_among_few(
    storage: Storage, lease: PodLease
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: MANY})
    await put(storage, [f"k{n}" for n in range(2 * SIZE)])
    await cost(storage, lease)
    among_few = await cost(storage, lease)
    await put(storage, [f"k{n}" for n in range(MANY)])
    # Each of the many has a job in progress, and one that waits.
    for _ in range(MANY // 200):
        await claim(storage, lease, limit=200)
    await put(storage, [f"k{n}" for n in range(MANY)])
    among_many = await cost(storage, lease)
    assert among_many <= 1.2 * among_few


async def statements(storage: Storage, lease: PodLease) -> int:
    """Return the statements of an exchange that ends and claims as many as it asks for."""
    asked = Demand(worker_ids=(), limit=SIZE, kinds=frozenset({KIND}))
    found: list[Any] = []
    ends = [Finalization(each.claim, done()) for each in await claim(storage, lease, limit=SIZE)]
    with handed_to_the_driver(lambda *given: found.append(given)):
        assert len((await storage.jobs.exchange(QUEUE, ends, asked, lease)).claimed) == SIZE
    return len(found)


async def test_limits_that_do_not_bind_take_two_statements_more(
    storage: Storage, lease: PodLease
) -> None:
    await storage.jobs.enqueue([new_job() for _ in range(2 * SIZE)])
    plain = await statements(storage, lease)
    await storage.config.ensure_limits(QUEUE, {NAME: MANY})
    await put(storage, [f"k{n}" for n in range(2 * SIZE)])
    assert await statements(storage, lease) == plain + 2


async def test_a_claim_in_turn_reads_few_jobs_of_each_key(
    storage: Storage, lease: PodLease
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: MANY}, {NAME: 1})
    keys = [f"k{n}" for n in range(5 * SIZE)]
    for _ in range(3):
        await put(storage, keys)
    await cost(storage, lease)
    few = await cost(storage, lease)
    for _ in range(SIZE):
        await put(storage, keys)
    assert await cost(storage, lease) <= 1.2 * few
