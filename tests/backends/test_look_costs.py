"""The cost of a look at limits by key, in statements."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from forge_jobs.model.looks import JobsAsked
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.asked import asked, beside_notices
from tests.support.backends import forget, url_of
from tests.support.factories import KIND, QUEUE, claim, new_job, register

pytestmark = pytest.mark.anyio

QUEUES = 40


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Storage]:
    async with await open_storage(await url_of(request.param, tmp_path)) as opened:
        yield opened
    await forget(request.param, tmp_path)


async def test_limits_at_which_no_job_waits_cost_no_statement_each(store: Storage) -> None:
    names = tuple(f"tenant-{number:02}" for number in range(QUEUES))
    for name in names:
        await store.config.ensure_limits(name, {"hosts": 2, "reports": 1})
    with asked() as seen:
        look = await store.jobs.look(JobsAsked(limited=names))
    assert len(look.limits) == 2 * QUEUES
    assert 2 <= beside_notices(seen) < QUEUES


@pytest.mark.parametrize("keys", [2, 30])
async def test_a_limit_at_which_jobs_wait_costs_as_much_with_many_full_keys(
    store: Storage, keys: int
) -> None:
    lease = await register(store, lease_for=timedelta(hours=1))
    await store.config.ensure_limits(QUEUE, {"hosts": 1})
    names = [f"k{number:02}" for number in range(keys)]
    await store.jobs.enqueue([new_job(limit_name="hosts", limit_key=key) for key in 2 * names])
    while await claim(store, lease, limit=keys):
        pass
    with asked() as seen:
        [load] = (await store.jobs.look(JobsAsked(limited=(QUEUE,)))).limits
    assert (load.full, load.waiting) == (keys, keys)
    assert {(each.running, each.waiting, each.kinds) for each in load.full_keys} == {
        (1, 1, (KIND,))
    }
    assert beside_notices(seen) <= 14, seen
