"""A workflow of 100,000 jobs: stored, run to its end, and its state read."""

from typing import Any

import pytest

from forge_jobs import Group, Workflow, group_handlers
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.any_store,
    pytest.mark.long,
    # 60 to 140 seconds alone, seventeen minutes on PostgreSQL beside two other suites.
    pytest.mark.timeout(2_400),
]

MEMBERS = 10_000


async def test_a_workflow_of_a_hundred_thousand_jobs_runs_to_its_end(storage: Storage) -> None:
    handlers = HandlerRegistry()
    handlers.include(group_handlers())

    async def nothing() -> None:
        return None

    noop: Handler[..., Any] = handlers.register(nothing, "noop", keep_result=False)
    workflow = Workflow("large")
    workflow.step("start", noop.request())
    many = Group([noop.request()] * MEMBERS)
    for number in range(5):
        # 50,000 children of one job, and behind them 10,000 of each group.
        workflow.step(f"first {number}", many, after=["start"])
        workflow.step(f"then {number}", many, after=[f"first {number}"])
    workflow.step("end", noop.request(), after=[f"then {number}" for number in range(5)])

    async with a_runtime(storage, handlers, 200).start() as handle:
        stored = await handle.enqueue_workflow(workflow)
        assert await handle.result(stored.id, timeout=2_000) == {"steps": 12}
        state = await handle.client.workflow(stored.id)
        group = await handle.client.group(stored.steps["then 4"].job_id)
        counted = (await storage.jobs.counts())["default"].by_status

    assert (state.total, state.done, state.status) == (12, 12, JobStatus.DONE)
    assert (group.done, group.waiting) == (MEMBERS, 0)
    assert counted[JobStatus.DONE] == 10 * MEMBERS + 13
