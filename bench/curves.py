"""Figures over a growing number of pods, queues, schedules, or bytes."""

from bench.suite import Bench

POD_WORKERS = 10
POD_WAIT_MS = 5.0


async def pods(bench: Bench) -> None:
    """Pods of one queue, each of ten workers whose jobs wait 5 ms."""
    for count in (1, 2, 4, 8):
        ideal = count * POD_WORKERS * 1_000 / POD_WAIT_MS
        await bench.drain(
            f"{count} pods x {POD_WORKERS}, jobs wait {POD_WAIT_MS:g} ms (ideal {ideal:,.0f})",
            bench.scaled(10_000 * count),
            POD_WORKERS,
            count,
            kind="wait",
            wait_ms=POD_WAIT_MS,
        )


async def queues(bench: Bench) -> None:
    """A pod with a hundred slots over the queues, at least one each."""
    for count in (1, 10, 100, 1_000):
        await bench.drain(f"{count:,} queues", bench.scaled(20_000), 100, queues=count)


async def schedules(bench: Bench) -> None:
    """Schedules that are due at once, and the same number idle beside a drain."""
    for count in (10, 100, 1_000, 10_000):
        stored = count if count <= 100 else bench.scaled(count)
        await bench.drain(f"{stored:,} schedules due at once", 0, 100, schedules=stored, due=True)
        await bench.drain(
            f"drain beside {stored:,} schedules", bench.scaled(20_000), 100, schedules=stored
        )


async def payloads(bench: Bench) -> None:
    """Jobs enqueued in bulk and drained: as many as make 200 MB, within bounds."""
    for size, name in (
        (100, "100 B"),
        (1_000, "1 kB"),
        (10_000, "10 kB"),
        (100_000, "100 kB"),
        (1024**2 - 1_024, "1 MiB"),  # the envelope takes the rest of the bound
    ):
        jobs = bench.scaled(max(200, min(20_000, 200_000_000 // size)))
        await bench.drain(f"drain, payloads of {name}", jobs, 100, payload=size)
