"""How fast retention removes jobs, with few queues and with many, and what it costs a drain."""

import asyncio
import time

from bench.suite import Bench
from forge_jobs import open_storage
from forge_jobs.clock import ManualClock
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import JobStatus, NewJob
from forge_jobs.runtime.cleanup import Cleanup

QUEUES = (1, 20, 1_000)
JOBS, DRAINED = 100_000, 50_000
TARGETS = {"postgres": ">= 10000"}
_AT_ONCE = 1_000


async def retention(bench: Bench) -> None:
    """Rows a second of a pass alone, and a drain beside a pass over a drain alone."""
    jobs = bench.scaled(JOBS, 5_000)
    for queues in QUEUES:
        rates, longest = list[float](), list[float]()
        for _ in range(bench.runs):
            url = await bench.store.fresh()
            await _fill(url, jobs, queues)
            rate, hold = await _removed(url)
            rates.append(rate)
            longest.append(hold)
        bench.add(
            f"jobs removed a second, {queues} queues",
            "1/s",
            rates,
            target=TARGETS.get(bench.store.kind, ""),
            costs={"longest batch, ms": max(longest) * 1000},
        )
    drained = bench.scaled(DRAINED, 5_000)
    shares = []
    for _ in range(bench.runs):
        alone, beside = [
            await _drained(bench, drained, old) for old in (0, bench.scaled(10 * JOBS, 5_000))
        ]
        shares.append(beside / alone)
    bench.add("drain beside retention over alone", "x", shares, target=">= 0.8")


async def _fill(url: str, jobs: int, queues: int) -> None:
    """Jobs that were cancelled long ago."""
    async with await open_storage(url, clock=ManualClock()) as storage:
        for number in range(queues):
            left, name = jobs // queues, f"old{number}"
            while left:
                some = min(left, _AT_ONCE)
                await storage.jobs.enqueue(
                    [
                        NewJob(id=new_job_id(), kind="old", queue=name, payload="{}")
                        for _ in range(some)
                    ]
                )
                which = JobFilter(queues=(name,), statuses=(JobStatus.PENDING,))
                await storage.jobs.cancel(which, limit=_AT_ONCE)
                left -= some


async def _removed(url: str) -> tuple[float, float]:
    """Rows a second of a pass, pauses included, and the longest batch in seconds."""
    async with await open_storage(url) as storage:
        cleanup = Cleanup(storage.jobs)
        rows, longest, began = 0, 0.0, time.perf_counter()
        while True:
            batch = time.perf_counter()
            report = await cleanup.go_on()
            longest = max(longest, time.perf_counter() - batch)
            rows += report.rows
            if report.next_in is None:
                return rows / (time.perf_counter() - began), longest
            await asyncio.sleep(report.next_in.total_seconds())


async def _drained(bench: Bench, jobs: int, old: int) -> float:
    """Jobs a second of a drain, beside a pass over so many old jobs."""
    url = await bench.store.fresh()
    if old:
        await _fill(url, old, 20)
    work = await bench.runner.fill(url, jobs)
    passing = asyncio.create_task(_removed(url)) if old else None
    drained = await bench.runner.drained(work, jobs, 100)
    if passing is not None:
        passing.cancel()
        await asyncio.wait({passing})
    return drained.value
