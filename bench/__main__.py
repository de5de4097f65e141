"""Print the first figures of one store: ``python -m bench [--storage URL] [--runs N]
[--quick] [--json FILE]``."""

import argparse
import json
import secrets
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import anyio

from bench import workloads
from bench.environment import environment
from bench.figures import Figure


class Bench:
    """Runs workloads, each on a store of its own, and keeps their figures."""

    def __init__(self, folder: Path, storage: str | None, runs: int) -> None:
        self._folder = folder
        self._storage = storage
        self._runs = runs
        self._run = secrets.token_hex(4)
        self._stores = 0
        self.figures: list[Figure] = []

    def url(self) -> str:
        """The URL of a store nobody has used."""
        self._stores += 1
        if self._storage is None:
            return f"sqlite:///{self._folder}/bench{self._stores}.db"
        kind = "schema" if self._storage.startswith("postgres") else "prefix"
        separator = "&" if "?" in self._storage else "?"
        return f"{self._storage}{separator}{kind}=bench_{self._run}_{self._stores}"

    async def measure(self, name: str, unit: str, run: Callable[[], Awaitable[float]]) -> None:
        """One figure of several runs, printed as soon as it is there."""
        self._add(Figure(name, unit, tuple([await run() for _ in range(self._runs)])))

    async def drain(self, jobs: int, workers: int) -> float:
        """One run of the drain, on a fresh store."""
        return await workloads.drain(self.url(), jobs, workers)

    async def measure_pickup(self, jobs: int) -> None:
        """Two figures of the same runs."""
        pairs = [await workloads.pickup(self.url(), jobs) for _ in range(self._runs)]
        for index, name in enumerate(("p50", "p99")):
            self._add(
                Figure(f"pickup on an idle worker, {name}", "ms", tuple(p[index] for p in pairs))
            )

    def _add(self, figure: Figure) -> None:
        self.figures.append(figure)
        print(figure.line(), flush=True)


async def run_all(bench: Bench, scale: float) -> None:
    """Every figure, in the order of the targets."""
    jobs = int(20_000 * scale)
    for workers in (10, 100):
        await bench.measure(
            f"drain {jobs:,} no-ops, {workers} workers",
            "jobs/s",
            partial(bench.drain, jobs, workers),
        )
    few = int(2_000 * scale)
    await bench.measure(
        "enqueue one awaited after another",
        "jobs/s",
        lambda: workloads.enqueue_one_by_one(bench.url(), few),
    )
    await bench.measure(
        "enqueue by 100 concurrent callers",
        "jobs/s",
        lambda: workloads.enqueue_by_callers(bench.url(), jobs, 100),
    )
    await bench.measure(
        "enqueue in bulk, one call of 10,000",
        "jobs/s",
        lambda: workloads.enqueue_in_bulk(bench.url(), int(10_000 * scale)),
    )
    await bench.measure_pickup(int(300 * scale))
    await bench.measure(
        "idle pod, 10 queues x 10 workers",
        "asked/s",
        lambda: workloads.idle_statements(bench.url(), 12 * scale),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--storage", help="a postgresql: or redis: URL; stores of new names are made, and stay"
    )
    parser.add_argument("--runs", type=int, default=3, help="runs per figure")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, to try it out")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        facts = anyio.run(environment, options.storage or f"sqlite:///{folder}/facts.db")
        for name, fact in facts.items():
            print(f"{name:<12} {fact}")
        bench = Bench(Path(folder), options.storage, options.runs)
        anyio.run(run_all, bench, 0.1 if options.quick else 1.0)
    if options.json:
        figures = {f.name: {"unit": f.unit, "runs": f.runs} for f in bench.figures}
        options.json.write_text(json.dumps({"environment": facts, "figures": figures}, indent=2))


main()
