"""Effects of a million jobs on a store and on the process that ran them."""

from bench.runs import Runner
from bench.side import Work
from bench.suite import Bench
from forge_jobs import open_storage


async def rss(bench: Bench) -> None:
    """Memory of one process after a million jobs over that after 10,000."""
    jobs = bench.scaled(1_000_000, 20_000)
    grown = []
    for _ in range(bench.runs):
        work = await _million(bench)
        costs = (await bench.runner.drained(work, jobs, 100)).costs
        grown.append(costs["RSS after, MiB"] / costs["RSS after 10,000, MiB"])
    bench.add(f"RSS after {jobs:,} jobs over after 10,000", "x", grown, target="<= 1.05")


async def million(bench: Bench) -> None:
    """Time per job beside a million finished and 100,000 waiting rows, over an empty store's."""
    jobs, finished = bench.scaled(50_000), bench.scaled(1_000_000, 20_000)
    waiting = bench.scaled(100_000)
    work = await _million(bench)
    await bench.runner.drained(work, finished, 100)
    await bench.runner.fill(work.url, waiting)
    slower = []
    for _ in range(bench.runs):
        loaded = await _drain_on(bench.runner, work.url, jobs)
        empty = await _drain_on(bench.runner, await bench.store.fresh(beside=True), jobs)
        slower.append(empty / loaded)
    bench.add(
        f"time per job, {finished:,} finished and {waiting:,} waiting, over an empty store",
        "x",
        slower,
        target="<= 1.2",
    )


async def _million(bench: Bench) -> Work:
    url = await bench.store.fresh()
    return await bench.runner.fill(url, bench.scaled(1_000_000, 20_000))


async def _drain_on(runner: Runner, url: str, jobs: int) -> float:
    """Jobs per second for as many more as are enqueued, whichever of those that wait run."""
    work = await runner.fill(url, jobs)
    async with await open_storage(url) as storage:
        counts = await storage.jobs.counts()
    done = sum(each.by_status.get("done", 0) for each in counts.values())
    return (await runner.drained(work, done + jobs, 100)).value
