"""Relatives of many jobs cost as many calls as those of one."""

import pytest

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After
from forge_jobs.storage.protocols import Storage
from tests.support.asked import asked, beside_notices
from tests.support.backends import BACKENDS
from tests.support.factories import DAY, new_job

pytestmark = pytest.mark.anyio


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def test_a_hundred_jobs_are_read_in_as_many_calls_as_one(storage: Storage) -> None:
    parents = [new_job(delay=DAY) for _ in range(100)]
    children = [new_job(after=(After(each.id),)) for each in parents]
    await storage.jobs.enqueue([*parents, *children])

    async def cost(ids: list[JobId]) -> int:
        await storage.jobs.kin(ids, limit=10)
        with asked() as seen:
            found = await storage.jobs.kin(ids, limit=10)
        assert [len(each.parents) + len(each.children) for each in found.values()] == [1] * len(ids)
        # On Redis it depends on the ids in how many hashes their locators lie.
        locators = sum(count for text, count in seen.items() if "HMGET" in text)
        return beside_notices(seen) - locators

    one = await cost([children[0].id])
    for jobs in (parents, children, [*parents[:50], *children[:50]]):
        assert await cost([each.id for each in jobs]) == one
