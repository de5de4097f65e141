"""The share of the bare store that a drain leaves to users."""

from bench.limits.ceiling import FASTEST, ceiling
from bench.side import JOBS_PER_CALL
from bench.suite import Bench

TARGETS = {"postgres": ">= 0.4", "redis": ">= 0.2", "sqlite": ">= 0.3"}


async def of_bare(bench: Bench) -> None:
    """Drains in turn with the bare store at the batch that arises in them, on one connection."""
    for workers, jobs in ((10, bench.scaled(20_000)), (100, bench.scaled(50_000))):
        counted = await bench.runner.drain(jobs, workers, count_batches=True)
        batch = max(1, round(counted.costs[JOBS_PER_CALL]))
        shares = []
        for _ in range(bench.runs):
            ours = await bench.runner.drain(jobs, workers)
            bare, _ = await ceiling(bench.store, FASTEST[bench.store.kind], batch, 1, jobs)
            shares.append(ours.value / bare)
        bench.add(
            f"drain, {workers} workers, of the bare store at {batch} a batch",
            "x",
            shares,
            target=TARGETS[bench.store.kind],
        )
