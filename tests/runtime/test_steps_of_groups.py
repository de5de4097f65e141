"""Steps of a workflow that are groups: many jobs as one step."""

from datetime import UTC, datetime
from typing import Annotated, Any

import pytest

from forge_jobs import FromStep, Group, Steps, Workflow, group_handlers
from forge_jobs.clients.client import JobClient
from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support.factories import get_job, new_job
from tests.support.runtimes import a_runtime, ended
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

NOOP: EnqueueRequest[Any] = EnqueueRequest("tests.noop", max_attempts=1)


class Shop:
    """Handlers of an import: a list, a job for each part of the list, and a sum."""

    def __init__(self) -> None:
        self.handlers = HandlerRegistry()
        self.handlers.include(group_handlers())
        self.broken: set[int] = set()
        self.ran: list[object] = []
        self.list: Handler[..., Any] = self.handlers.register(self._list, "list", max_attempts=1)
        self.part: Handler[..., Any] = self.handlers.register(self._part, "part", max_attempts=1)
        self.sum: Handler[..., Any] = self.handlers.register(self._sum, "sum", max_attempts=1)

    async def _list(self) -> int:
        self.ran.append("list")
        return 100

    async def _part(self, number: int, base: Annotated[int, FromStep("list")]) -> int:
        self.ran.append(number)
        if number in self.broken:
            raise ValueError(f"part {number} is broken")
        return base + number

    async def _sum(self, parts: Annotated[list[int], FromStep("parts")], ctx: JobContext) -> int:
        self.ran.append("sum")
        assert {each.step for each in await ctx.parents()} == {"parts"}
        assert parts == [100, 101, 102]
        return sum(parts)

    def workflow(self, **options: Any) -> Workflow:
        workflow = Workflow("import", **options)
        workflow.step("list", self.list.request())
        parts = Group([self.part.request(number) for number in range(3)], tags=("parts",))
        workflow.step("parts", parts, after=["list"])
        workflow.step("sum", self.sum.request(), after=["parts"])
        return workflow


async def test_a_group_is_one_step_and_its_members_come_after_the_steps_before(
    storage: Storage,
) -> None:
    shop = Shop()
    async with a_runtime(storage, shop.handlers, 3).start() as handle:
        stored = await handle.enqueue_workflow(shop.workflow())
        assert set(stored.steps) == {"list", "parts", "sum"}
        assert await handle.result(stored.steps["sum"].job_id, timeout=50) == 303
        assert await handle.result(stored.id, timeout=50) == {"steps": 3}
        state = await handle.client.workflow(stored.id)
        group = await handle.client.group(stored.steps["parts"].job_id)
        # A repeat is the same workflow.
        again = await handle.enqueue_workflow(shop.workflow(id=stored.id))
        assert {name: each.job_id for name, each in again.steps.items()} == {
            name: each.job_id for name, each in stored.steps.items()
        }
    assert (shop.ran[0], shop.ran[-1]) == ("list", "sum")
    assert sorted(shop.ran[1:-1], key=str) == [0, 1, 2]
    assert (state.total, state.done, list(state.steps)) == (3, 3, ["list", "parts", "sum"])
    assert (group.done, group.total) == (3, 3)
    assert (await get_job(storage, group.id)).tags == ("parts",)


async def test_a_member_that_died_is_resumed_and_the_group_behind_it(storage: Storage) -> None:
    shop = Shop()
    shop.broken.add(1)
    async with a_runtime(storage, shop.handlers, 3).start() as handle:
        stored = await handle.enqueue_workflow(shop.workflow())
        await ended(storage, stored.steps["parts"].job_id)

        async def is_held() -> bool:
            return bool((await get_job(storage, stored.id)).held_by)

        await wait_until(is_held, description="the whole is held by the group")
        state = await handle.client.workflow(stored.id)
        assert (state.held_by, state.steps["sum"].held_by) == (("parts",), ("parts",))
        assert state.steps["parts"].status is JobStatus.DEAD
        shop.broken.clear()
        # The member and the group.
        assert (await handle.client.resume_workflow(stored.id)).changed == 2
        assert await handle.result(stored.steps["sum"].job_id, timeout=50) == 303
        assert await handle.result(stored.id, timeout=50) == {"steps": 3}
    assert [shop.ran.count(each) for each in (0, 1, 2, "sum")] == [1, 2, 1, 1]


async def test_a_cancel_takes_the_members_too_and_a_resume_takes_it_back(storage: Storage) -> None:
    shop = Shop()
    async with JobClient(storage, shop.handlers) as client:
        stored = await client.enqueue_workflow(shop.workflow())
        assert (await client.cancel_workflow(stored.id)).changed == 7
        counts = (await storage.jobs.counts())["default"].by_status
        assert counts[JobStatus.CANCELLED] == 7
        assert (await client.resume_workflow(stored.id)).changed == 7
    async with a_runtime(storage, shop.handlers, 3).start() as handle:
        assert await handle.result(stored.id, timeout=50) == {"steps": 3}
        assert await handle.result(stored.steps["sum"].job_id, timeout=50) == 303


async def test_a_group_is_added_while_the_workflow_runs(storage: Storage) -> None:
    shop = Shop()
    more = Steps()
    more.step("more", Group([NOOP, NOOP]), after=["list"])
    async with JobClient(storage, shop.handlers) as client:
        stored = await client.enqueue_workflow(shop.workflow())
        added = await client.add_steps(stored.id, more)
        assert await client.add_steps(stored.id, more) == added
        state = await client.workflow(stored.id)
        assert (state.total, state.steps["more"].after) == (4, {"list": "hold"})
        assert (await client.group(added["more"].job_id)).total == 2
        members = (await storage.jobs.parents([added["more"].job_id]))[added["more"].job_id]
        for each in members:
            job = await get_job(storage, each)
            assert list(job.waits_for) == [stored.steps["list"].job_id]
            assert job.metadata["forge_jobs.workflow"] == stored.id


async def test_members_have_the_deadline_of_the_workflow(storage: Storage) -> None:
    noon = datetime(2090, 1, 1, tzinfo=UTC)
    shop = Shop()
    async with JobClient(storage, shop.handlers) as client:
        stored = await client.enqueue_workflow(shop.workflow(deadline=noon))
        group = stored.steps["parts"].job_id
        for each in (group, *(await storage.jobs.parents([group]))[group]):
            assert (await get_job(storage, each)).expires_at == noon


def test_a_group_that_is_no_step_is_refused() -> None:
    an_id = JobId(new_job().id)
    for group, problem in (
        (Group([]), "has 0 members"),
        (Group([NOOP], id=an_id), "has an id"),
        (Group([NOOP.options(id=an_id)]), "has an id"),
        (Group([NOOP.options(unique_key="k")]), "has a unique key"),
        (Group([NOOP], on_success=NOOP), "is a group with a callback"),
        (Group([NOOP] * 10_001), "has 10001 members"),
    ):
        with pytest.raises(InvalidInput, match=problem):
            Workflow("w").step("many", group)
