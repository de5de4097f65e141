"""The figures of ``make bench``, in the order of the targets."""

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from bench.children import ChildFailed
from bench.figures import Figure, median_costs
from bench.host import StealTime
from bench.runs import Run, Runner, counted_costs
from bench.stores import Store

Measure = Callable[[], Awaitable[Run]]

FAILURES = (ChildFailed, ValueError)
"""Errors that end one figure: a process that ended or hung, or jobs that did not all run."""


class Bench:
    """Repeats runs, keeps the figures and prints each at once.

    :param runs: per figure
    :param scale: of the amount of work. 1 is the full amount
    """

    def __init__(self, store: Store, runner: Runner, runs: int, scale: float) -> None:
        self.store = store
        self.runner = runner
        self.runs = runs
        self._scale = scale
        self.figures: list[Figure] = []
        self.failures: dict[str, str] = {}
        self._stolen = StealTime()

    def scaled(self, count: int, least: int = 20) -> int:
        """``count`` of a full run, as many as this one does."""
        return max(least, int(count * self._scale))

    async def repeat(
        self, name: str, unit: str, measure: Measure, counted: Measure | None = None
    ) -> None:
        """Measure a figure in several runs. Statements per job come from one more run that counts
        them.

        A run that fails ends this figure, not the bench.
        """
        try:
            await self._repeat(name, unit, measure, counted)
        except FAILURES as error:
            self.fail(name, error)

    async def _repeat(
        self, name: str, unit: str, measure: Measure, counted: Measure | None
    ) -> None:
        runs = [await measure() for _ in range(self.runs)]
        costs = median_costs([run.costs for run in runs])
        if counted is not None and "statements per job" not in costs:
            costs |= counted_costs((await counted()).costs)
        self.add(name, unit, [run.value for run in runs], costs=costs)

    def fail(self, name: str, error: Exception) -> None:
        """Keep and print why there is no figure."""
        self.failures[f"{self.store.kind}: {name}"] = str(error)
        print(f"{self.store.kind:<9} {name:<52} FAILED: {error}", flush=True)

    def add(
        self,
        name: str,
        unit: str,
        values: list[float],
        *,
        target: str = "",
        costs: dict[str, float] | None = None,
    ) -> None:
        """Keep and print a figure."""
        figure = Figure(
            store=self.store.kind,
            name=name,
            unit=unit,
            runs=tuple(values),
            target=target,
            costs=(costs or {}) | self._stolen.costs(),
        )
        self._stolen = StealTime()
        self.figures.append(figure)
        print(figure.lines(), flush=True)

    async def drain(
        self, name: str, jobs: int, workers: int, processes: int = 1, **options: Any
    ) -> None:
        """Measure a drain, with the statements per job."""
        run = self.runner.drain
        await self.repeat(
            name,
            "jobs/s",
            lambda: run(jobs, workers, processes, **options),
            lambda: run(jobs, workers, processes, counted=True, **options),
        )

    async def enqueue(self, name: str, how: str, jobs: int) -> None:
        """Measure an enqueue, with the statements per job."""
        run = self.runner.enqueue
        await self.repeat(
            name, "jobs/s", lambda: run(how, jobs), lambda: run(how, jobs, counted=True)
        )


async def drain_10(bench: Bench) -> None:
    await bench.drain("drain, 10 workers", bench.scaled(20_000), 10)


async def drain_100(bench: Bench) -> None:
    await bench.drain("drain, 100 workers", bench.scaled(50_000), 100)


async def drain_2x100(bench: Bench) -> None:
    await bench.drain("drain, two processes x 100 workers", bench.scaled(50_000), 100, 2)


async def enqueue_one(bench: Bench) -> None:
    await bench.enqueue("enqueue, one awaited after another", "one", bench.scaled(5_000))


async def enqueue_callers(bench: Bench) -> None:
    await bench.enqueue(
        "enqueue by 100 concurrent callers of one client", "callers", bench.scaled(50_000, 100)
    )


async def enqueue_bulk(bench: Bench) -> None:
    # Below 10,000 it would be another figure.
    await bench.enqueue("enqueue of 10,000 in one call", "bulk", 10_000)


PICKUP_TARGETS = {
    "postgres": ("<= 1.5", "<= 4"),
    "redis": ("<= 1.2", "<= 3"),
    "sqlite": ("<= 1", "<= 3"),
}
FROM_ANOTHER_TARGETS = PICKUP_TARGETS | {"sqlite": ("<= 30", "<= 60")}


async def pickup(bench: Bench) -> None:
    jobs = bench.scaled(300)
    pairs = [await bench.runner.pickup(jobs) for _ in range(bench.runs)]
    _add_pickup(bench, "pickup, sender in the worker's process", pairs, PICKUP_TARGETS)


async def pickup_from_another(bench: Bench) -> None:
    jobs = bench.scaled(300)
    pairs = [await bench.runner.pickup_from_another(jobs) for _ in range(bench.runs)]
    _add_pickup(bench, "pickup, sender another process", pairs, FROM_ANOTHER_TARGETS)


def _add_pickup(
    bench: Bench,
    name: str,
    pairs: list[tuple[Run, Run]],
    targets: dict[str, tuple[str, str]],
) -> None:
    for index, quantile in enumerate(("p50", "p99")):
        values = [pair[index].value for pair in pairs]
        target = targets[bench.store.kind][index]
        bench.add(f"{name}, {quantile}", "ms", values, target=target)


async def idle(bench: Bench) -> None:
    seconds = bench.scaled(30, 2)
    runs = [await bench.runner.idle(100, seconds, queues=10) for _ in range(bench.runs)]
    bench.add(
        "idle pod, 10 queues x 10 workers",
        "asked/s",
        [run.value for run in runs],
        target="<= 2",
        costs=median_costs([run.costs for run in runs]),
    )


async def limits(bench: Bench) -> None:
    """Jobs take a token of a bucket that never runs dry, or their handler declares such a rate, or
    a limit by key that holds nothing back, in turn with jobs that do not."""
    jobs = bench.scaled(20_000)
    limited, rated, keyed = [], [], []
    for _ in range(bench.runs):
        without = (await bench.runner.drain(jobs, 100)).value
        limited.append((await bench.runner.drain(jobs, 100, kind="limited")).value / without)
        rated.append((await bench.runner.drain(jobs, 100, kind="rated")).value / without)
        keyed.append((await bench.runner.drain(jobs, 100, kind="keyed")).value / without)
    bench.add("limits on but not binding, over without", "x", limited, target=">= 0.9")
    bench.add("declared rates that do not bind, over without", "x", rated, target=">= 0.9")
    bench.add("limits by key that do not bind, over without", "x", keyed, target=">= 0.9")


async def waiting_jobs(bench: Bench) -> None:
    jobs, workers, milliseconds = bench.scaled(50_000), 100, 10.0
    ideal = workers * 1_000 / milliseconds
    shares = []
    for _ in range(bench.runs):
        run = await bench.runner.drain(jobs, workers, kind="wait", wait_ms=milliseconds)
        shares.append(run.value / ideal)
    bench.add("jobs that wait 10 ms, 100 workers, of the ideal 10,000/s", "x", shares)


SUITE: dict[str, Callable[[Bench], Awaitable[None]]] = {
    "drain-10": drain_10,
    "drain-100": drain_100,
    "drain-2x100": drain_2x100,
    "enqueue-one": enqueue_one,
    "enqueue-callers": enqueue_callers,
    "enqueue-bulk": enqueue_bulk,
    "pickup": pickup,
    "pickup-from-another": pickup_from_another,
    "idle": idle,
    "limits": limits,
    "wait": waiting_jobs,
}


def chosen(only: Collection[str], known: Collection[str]) -> list[str]:
    """Return the names to measure, in their own order. A choice matches a name or its beginning.

    :raises ValueError: a choice matches nothing
    """
    for choice in only:
        if not any(name.startswith(choice) for name in known):
            raise ValueError(f"{choice!r} is none of {', '.join(known)}")
    return [n for n in known if not only or any(n.startswith(choice) for choice in only)]
