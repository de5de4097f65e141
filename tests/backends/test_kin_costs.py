"""Relatives of many jobs cost as many calls as those of one, and a workflow is one read."""

import pytest

from forge_jobs import EnqueueRequest, Workflow
from forge_jobs.clients.client import JobClient
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


async def test_the_state_of_a_workflow_is_one_read(storage: Storage, backend: str) -> None:
    client = JobClient(storage)

    async def cost(steps: int) -> int:
        workflow = Workflow("large")
        for number in range(steps):
            request = EnqueueRequest("kind", {}, queue=f"q{number % 2}", delay=DAY)
            workflow.step(f"step {number}", request)
        stored = await client.enqueue_workflow(workflow)
        await client.workflow(stored.id)
        with asked() as seen:
            state = await client.workflow(stored.id)
        assert (state.total, state.waiting) == (steps, steps)
        # On Redis it depends on the ids in how many hashes their locators lie.
        locators = sum(count for text, count in seen.items() if "HMGET" in text)
        return beside_notices(seen) - locators

    # One statement, on PostgreSQL between BEGIN and COMMIT. On Redis the job with its edges, then
    # the states of the steps: one call for each server.
    calls = {"sqlite": 1, "postgres": 3, "redis": 2, "redis-cluster": 3}[backend]
    assert [await cost(2), await cost(400)] == [calls, calls]
    await client.aclose()
