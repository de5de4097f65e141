"""A queue that many tenants share: ``python fair_tenants.py``.

- ``Limit(key="{tenant}", share=1)``: the tenants take turns. A big one enqueues a backlog first,
  and each small one still has a statement after a round of the tenants.
- A tenant alone has all slots, and no slot stays empty while a job waits.
- ``forge-jobs limits set-concurrency statements statement.build 2 --share 1`` bounds each tenant as
  well, while the program runs.
"""

import asyncio
import os

import anyio

from forge_jobs import (
    HandlerRegistry,
    JobClient,
    JobFilter,
    JobStatus,
    Limit,
    QueueRuntime,
    open_storage,
)

URL = os.environ.get("FORGE_STORAGE_URL", "sqlite:///fair.db")
BACKLOG, SMALL, SLOTS = int(os.environ.get("BACKLOG", "300")), 5, 4
OPEN = (JobStatus.PENDING, JobStatus.IN_PROGRESS, JobStatus.FAILED)

handlers = HandlerRegistry()
built: list[str] = []


@handlers.job("statement.build", queue="statements", concurrency=Limit(key="{tenant}", share=1))
async def build(tenant: str, number: int) -> None:
    await anyio.sleep(0.01)
    built.append(tenant)


async def main() -> None:
    async with await open_storage(URL) as storage:
        client = JobClient(storage, handlers)
        # The big tenant comes first, before any worker is there.
        await client.enqueue_many(
            [build.request(tenant="big", number=number) for number in range(BACKLOG)]
        )
        await client.enqueue_many(
            [build.request(tenant=f"small {number}", number=0) for number in range(SMALL)]
        )
        runtime = QueueRuntime(storage, handlers)
        async with runtime.with_queues(statements=SLOTS).start() as handle:
            open_jobs = JobFilter(queues="statements", statuses=OPEN)
            while await handle.client.count(open_jobs):  # noqa: ASYNC110
                await anyio.sleep(0.1)
    last = max(built.index(f"small {number}") for number in range(SMALL))
    print(f"{len(built)} statements, those of all small tenants among the first {last + 1}")
    print(f"the other slots went to the big one: {built.count('big')} statements")


if __name__ == "__main__":
    asyncio.run(main())
