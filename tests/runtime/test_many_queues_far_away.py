"""A pod of hundreds of queues at a store some milliseconds away starts, runs jobs and stops.

A call of the store has five seconds. What takes a few statements for each queue has none left then.
"""

from pathlib import Path

import anyio
import pytest

from forge_jobs import HandlerRegistry, Limit, QueueRuntime, open_storage
from forge_jobs.model.jobs import JobStatus
from tests.support.backends import pass_on, url_of
from tests.support.proxy import proxy
from tests.support.runtimes import job_when, quick_settings
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

QUEUES = {f"tenant-{number:03}": 1 for number in range(300)}
FIRST, *_, LAST = QUEUES
REPLIES_S = 0.005


@pytest.mark.parametrize("backend", ["postgres", "redis"])
async def test_a_pod_of_many_queues_serves_all_of_them(backend: str, tmp_path: Path) -> None:
    handlers = HandlerRegistry()

    @handlers.job("reports.make", concurrency=Limit(1, key="customer:{customer}"))
    async def make(customer: int) -> None: ...

    with proxy(await url_of(backend, tmp_path)) as way:
        way.slow_down(replies=REPLIES_S)
        async with await open_storage(way.url) as storage:
            runtime = QueueRuntime(storage, handlers, settings=quick_settings())
            with anyio.fail_after(60):
                async with runtime.with_queues(**QUEUES).start() as handle:

                    async def are_granted() -> bool:
                        granted = [
                            slots.grant
                            for each in await storage.procs.allocations()
                            for slots in each.pods.values()
                        ]
                        return granted == [1] * len(QUEUES)

                    await wait_until(are_granted, description="each queue has its slot")
                    for queue in (FIRST, LAST):
                        request = make.request(customer=1).options(queue=queue)
                        outcome = await handle.enqueue(request)
                        await job_when(storage, outcome.job_id, JobStatus.DONE)
            assert await storage.procs.pods() == []
    await pass_on(backend, tmp_path)
