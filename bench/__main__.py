"""Our own figures: ``python -m bench --help``, or ``make bench``."""

import argparse
import asyncio
from pathlib import Path

from bench import curves, handovers, large, limit_keys, limited, retention, share, snapshots, struck
from bench.child import loop_factory
from bench.environment import machine, server
from bench.figures import Figure
from bench.ours import Ours
from bench.report import Options, add_options, options_of, print_facts, save, stores_of
from bench.runs import Runner
from bench.suite import FAILURES, SUITE, Bench, chosen

FIGURES = SUITE | {
    "of-bare": share.of_bare,
    "million": large.million,
    "rss": large.rss,
    "retention": retention.retention,
    "beside-retention": retention.beside_retention,
    "handovers": handovers.handovers,
    "snapshot": snapshots.old_snapshot,
    "limits-by-key": limited.limits,
    "fair-shares": limited.fair_shares,
    "full-keys": limit_keys.limit_keys,
    "struck": struck.struck_jobs,
    "pods": curves.pods,
    "queues": curves.queues,
    "schedules": curves.schedules,
    "payloads": curves.payloads,
}


async def run(options: Options) -> None:
    """Measure what was chosen on each store in turn."""
    facts = {"machine": machine(options.folder)}
    print_facts(facts["machine"])
    figures: list[Figure] = []
    failures: dict[str, str] = {}
    for store in stores_of(options):
        async with store:
            facts[store.kind] = await server(store)
            print_facts(facts[store.kind])
            runner = Runner(store, Ours, cpus=options.worker_cpus)
            bench = Bench(store, runner, options.runs, options.scale)
            for name in chosen(options.only, FIGURES):
                try:
                    await FIGURES[name](bench)
                except FAILURES as error:
                    bench.fail(name, error)
                save(
                    options.json,
                    facts,
                    figures=[*figures, *bench.figures],
                    failures=failures | bench.failures,
                )
            figures += bench.figures
            failures |= bench.failures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    add_options(parser, FIGURES, Path("bench-results/ours.json"))
    options = options_of(parser, FIGURES)
    with asyncio.Runner(loop_factory=loop_factory(True)) as runner:
        runner.run(run(options))


main()
