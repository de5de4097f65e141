"""The pace at which children hear of the ends of their parents, by one pod."""

import time

from bench.suite import Bench
from forge_jobs import open_storage
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import After, JobStatus, NewJob
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.storage.protocols import Storage

CHILDREN = 10_000
TARGET = ">= 10000"
_AT_ONCE = 500


async def handovers(bench: Bench) -> None:
    """Handovers a second: to children of one parent, of a parent each, and to one child of many.

    A child is cancelled or settled as its edge says.
    """
    count = bench.scaled(CHILDREN, 2_000)
    for name, parents, children, policy in (
        ("children of one parent", 1, count, "continue"),
        ("cancelled children of one parent", 1, count, "cancel"),
        ("children of a parent each", count, count, "continue"),
        ("parents of one child", count, 1, "continue"),
    ):
        rates, ends = list[float](), list[float]()
        for _ in range(bench.runs):
            url = await bench.store.fresh()
            async with await open_storage(url) as storage:
                await _fill(storage, parents, children, policy)
                began = time.perf_counter()
                which = JobFilter(queues=("parents",), statuses=(JobStatus.PENDING,))
                left = parents
                while left > 0:
                    left -= len((await storage.jobs.cancel(which, limit=_AT_ONCE)).changed)
                told = time.perf_counter()
                applied = await hand_over_once(storage.jobs)
                rates.append(applied / (time.perf_counter() - told))
                ends.append(1000 * (told - began))
        costs = {"ends of the parents, ms": max(ends)}
        bench.add(f"handovers a second, {name}", "1/s", rates, target=TARGET, costs=costs)


async def _fill(storage: Storage, parents: int, children: int, policy: str) -> None:
    every = [
        NewJob(id=new_job_id(), queue="parents", kind="k", payload="{}") for _ in range(parents)
    ]
    edges = tuple(After(each.id, policy) for each in every)  # type: ignore[arg-type]
    waiting = [
        NewJob(
            id=new_job_id(),
            queue="children",
            kind="k",
            payload="{}",
            after=edges if children == 1 else (edges[number % parents],),
        )
        for number in range(children)
    ]
    for jobs in (every, waiting):
        for first in range(0, len(jobs), _AT_ONCE):
            await storage.jobs.enqueue(jobs[first : first + _AT_ONCE])
