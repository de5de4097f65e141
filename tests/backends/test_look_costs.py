"""The cost of a look at limits by key, in statements."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forge_jobs.model.looks import JobsAsked
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.asked import asked, beside_notices
from tests.support.backends import forget, url_of

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
