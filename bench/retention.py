"""The pace of retention, with few queues and with many, and the cost for a drain beside."""

import asyncio
import time

from bench.suite import Bench
from forge_jobs import open_storage
from forge_jobs.clock import ManualClock
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import JobStatus, NewJob
from forge_jobs.runtime.passes.cleanup import Cleanup

QUEUES = (1, 20, 1_000)
JOBS, DRAINED, OLD = 100_000, 60_000, 300_000
TARGETS = {"postgres": ">= 10000"}
_AT_ONCE = 1_000


async def retention(bench: Bench) -> None:
    """Rows a second of a pass alone."""
    jobs = bench.scaled(JOBS, 5_000)
    for queues in QUEUES:
        rates, longest = list[float](), list[float]()
        for _ in range(bench.runs):
            url = await bench.store.fresh()
            await _fill(url, jobs, queues)
            cleaning = _Pass()
            await cleaning.run(url)
            rates.append(cleaning.rate)
            longest.append(cleaning.longest)
        bench.add(
            f"jobs removed a second, {queues} queues",
            "1/s",
            rates,
            target=TARGETS.get(bench.store.kind, ""),
            costs={"longest batch, ms": max(longest) * 1000},
        )


async def beside_retention(bench: Bench) -> None:
    """Drain alone and beside a pass, by turns. The pass outlasts the drain."""
    jobs, old = bench.scaled(DRAINED, 20_000), bench.scaled(OLD, 150_000)
    shares, alone, beside, removed = list[float](), list[float](), list[float](), list[float]()
    for _ in range(bench.runs):
        alone.append((await _drained(bench, jobs, 0))[0])
        rate, gone = await _drained(bench, jobs, old)
        beside.append(rate)
        removed.append(gone)
        shares.append(beside[-1] / alone[-1])
    costs = {"least removed a second beside it": min(removed)}
    bench.add("drain alone", "jobs/s", alone)
    bench.add("drain beside retention", "jobs/s", beside, costs=costs)
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


class _Pass:
    """A pass of retention, as a pod makes it."""

    def __init__(self) -> None:
        self.rows = 0
        self.longest = 0.0
        """Seconds of a batch."""
        self.began = time.perf_counter()

    @property
    def rate(self) -> float:
        """Rows a second so far, pauses included."""
        return self.rows / (time.perf_counter() - self.began)

    async def run(self, url: str) -> None:
        """Run the pass to the end."""
        async with await open_storage(url) as storage:
            cleanup = Cleanup(storage.jobs)
            self.began = time.perf_counter()
            while True:
                batch = time.perf_counter()
                report = await cleanup.go_on()
                self.longest = max(self.longest, time.perf_counter() - batch)
                self.rows += report.rows
                if report.next_in is None:
                    return
                await asyncio.sleep(report.next_in.total_seconds())


async def _drained(bench: Bench, jobs: int, old: int) -> tuple[float, float]:
    """Return jobs a second of a drain beside a pass over old jobs, and rows a second there."""
    url = await bench.store.fresh()
    if old:
        await _fill(url, old, 20)
    work = await bench.runner.fill(url, jobs)
    cleaning = _Pass()
    passing = asyncio.create_task(cleaning.run(url)) if old else None
    drained = await bench.runner.drained(work, jobs, 100)
    if passing is not None:
        if passing.done():
            await passing
            raise ValueError("the pass ended before the drain: there is nothing to compare")
        passing.cancel()
        await asyncio.wait({passing})
    return drained.value, cleaning.rate
