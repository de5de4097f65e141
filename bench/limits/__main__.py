"""The ceilings of the bare stores: ``python -m bench.limits --help``."""

import argparse
import asyncio
from pathlib import Path

from bench.child import loop_factory
from bench.environment import machine, server
from bench.figures import Figure, median_costs
from bench.limits.bare import Bare
from bench.limits.ceiling import WAYS, ceiling
from bench.report import Options, add_options, options_of, print_facts, save, stores_of
from bench.stores import Store
from bench.suite import chosen

BATCHES = (1, 10, 100, 1_000)
CONNECTIONS = (1, 4)
# Jobs of one run, so that the run lasts for seconds at the pace of its batch.
JOBS = {1: 5_000, 10: 30_000, 100: 100_000, 1_000: 200_000}
NAMES = [f"{way}" for ways in WAYS.values() for way in ways]


async def measure(store: Store, options: Options, name: str, way: type[Bare]) -> list[Figure]:
    """All batches over all numbers of connections."""
    figures = []
    for connections in CONNECTIONS:
        for batch in BATCHES:
            jobs = max(10 * batch, int(JOBS[batch] * options.scale))
            runs = [
                await ceiling(store, way, batch, connections, jobs) for _ in range(options.runs)
            ]
            figure = Figure(
                store=store.kind,
                name=f"{name}, batch {batch:,}, {connections} connections",
                unit="jobs/s",
                runs=tuple(rate for rate, _ in runs),
                costs=median_costs([costs for _, costs in runs]),
            )
            print(figure.lines(), flush=True)
            figures.append(figure)
    return figures


async def run(options: Options) -> None:
    """Measure each store in turn."""
    facts = {"machine": machine(options.folder)}
    print_facts(facts["machine"])
    figures: list[Figure] = []
    for store in stores_of(options):
        async with store:
            facts[store.kind] = await server(store)
            print_facts(facts[store.kind])
            for name in chosen(options.only, NAMES):
                if name in WAYS[store.kind]:
                    figures += await measure(store, options, name, WAYS[store.kind][name])
                    save(options.json, facts, figures=figures)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.limits", description=__doc__)
    add_options(parser, NAMES, Path("bench-results/limits.json"), own_servers=True)
    options = options_of(parser, NAMES)
    with asyncio.Runner(loop_factory=loop_factory(True)) as runner:
        runner.run(run(options))


main()
