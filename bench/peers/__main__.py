"""Ours and other libraries in turn, round by round: ``python -m bench.peers --help``."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec import Struct

from bench.environment import load, machine, packages, server
from bench.figures import median_costs
from bench.host import StealTime
from bench.ours import Ours
from bench.peers.catalog import PEERS, TARGETS
from bench.peers.environments import NotInstalled, python_of, requirements_of
from bench.peers.table import Row, compare, lines, verdicts
from bench.report import Options, add_options, options_of, print_facts, save, stores_of
from bench.runs import Run, Runner, counted_costs
from bench.side import Side
from bench.stores import Store
from bench.suite import FAILURES, chosen

IDLE_SECONDS = 10.0
IDLE_ROUNDS = 2
"""At most: what an idle worker asks hardly differs, and a dozen of them take minutes."""


class Contender(Struct):
    """A side that can run here."""

    side: type[Side]
    runner: Runner

    def jobs(self, scale: float) -> int:
        """Return the jobs of a drain, chosen per side so that it lasts for seconds."""
        return max(200, int(self.side.jobs * scale))


Measure = Callable[[Contender, float, bool], Awaitable[tuple[Run, ...]]]


def _drain(workers: int, processes: int = 1) -> Measure:
    async def measure(each: Contender, scale: float, counted: bool) -> tuple[Run, ...]:
        jobs = each.jobs(scale)
        return (await each.runner.drain(jobs, workers, processes, counted=counted),)

    return measure


def _enqueue(how: str, count: int | None) -> Measure:
    async def measure(each: Contender, scale: float, counted: bool) -> tuple[Run, ...]:
        jobs = each.jobs(scale) if count is None else count
        return (await each.runner.enqueue(how, jobs, counted=counted),)

    return measure


async def _pickup(each: Contender, scale: float, counted: bool) -> tuple[Run, ...]:
    return await each.runner.pickup(max(20, int(200 * scale)))


async def _idle(each: Contender, scale: float, counted: bool) -> tuple[Run, ...]:
    return (await each.runner.idle(10, max(2.0, IDLE_SECONDS * scale)),)


WORKLOADS: dict[str, tuple[Measure, str, tuple[str, ...]]] = {
    "drain-10": (_drain(10), "jobs/s", ("",)),
    "drain-100": (_drain(100), "jobs/s", ("",)),
    "drain-2x100": (_drain(100, 2), "jobs/s", ("",)),
    "enqueue-one": (_enqueue("one", 2_000), "jobs/s", ("",)),
    "enqueue-callers": (_enqueue("callers", None), "jobs/s", ("",)),
    "enqueue-bulk": (_enqueue("bulk", 10_000), "jobs/s", ("",)),
    "pickup": (_pickup, "ms", (" p50", " p99")),
    "idle": (_idle, "asked/s", ("",)),
}


async def rounds(
    name: str, store: Store, contenders: list[Contender], runs: int, scale: float
) -> list[list[Row]]:
    """Run all sides in turn, round by round. Return a list of rows per figure of the workload.

    A side that fails is left out of the rounds that follow.
    """
    measure, unit, suffixes = WORKLOADS[name]
    if measure is _idle:
        runs = min(runs, IDLE_ROUNDS)
    tables = [[_row(store.kind, name + end, each, unit) for each in contenders] for end in suffixes]
    counted: dict[str, list[Run]] = {each.side.name: [] for each in contenders}
    stolen = StealTime()
    for number in range(runs + 1):
        # One round more counts statements where counting takes time, so it gives no figure.
        counting = number == runs
        if counting and unit != "jobs/s":
            break
        for index, each in enumerate(contenders):
            rows = [table[index] for table in tables]
            values = await _tried(measure, each, scale, rows, counting)
            if counting:
                _add_statements(rows, values)
                continue
            for row, value in zip(rows, values or [None] * len(rows), strict=True):
                row.runs.append(value.value if value else None)
            counted[each.side.name] += values[:1]
    lost = stolen.costs()
    for table in tables:
        for row in table:
            costs = median_costs([run.costs for run in counted[row.side]])
            row.costs = costs | row.costs | lost
        compare(table, Ours.name)
    return tables


async def _tried(
    measure: Measure, each: Contender, scale: float, rows: list[Row], counting: bool
) -> tuple[Run, ...]:
    """Return no run where the side fails, or has failed before. The rows say why."""
    if rows[0].error:
        return ()
    try:
        return await measure(each, scale, counting)
    except FAILURES as error:
        for row in rows:
            row.error = str(error)
        return ()


def _row(store: str, workload: str, each: Contender, unit: str) -> Row:
    return Row(
        store=store,
        workload=workload,
        side=each.side.name,
        unit=unit,
        acknowledges_after=each.side.acknowledges_after,
        runs=[],
        costs={},
    )


def _add_statements(rows: list[Row], values: tuple[Run, ...]) -> None:
    for row, value in zip(rows, values, strict=False):
        row.costs |= counted_costs(value.costs)


async def run(options: Options, sides: tuple[str, ...]) -> None:
    """Compare on each store in turn.

    :param sides: how the names of the other libraries begin. Empty: all
    """
    facts = {"machine": machine(options.folder)}
    print_facts(facts["machine"])
    found: list[Row] = []
    for store in stores_of(options):
        async with store:
            facts[store.kind] = await server(store)
            print_facts(facts[store.kind])
            contenders = [Contender(Ours, Runner(store, Ours, cpus=options.worker_cpus))]
            for side in PEERS[store.kind]:
                if sides and not side.name.startswith(sides):
                    continue
                facts[side.name] = _install(store, side, contenders, options)
            for name in chosen(options.only, WORKLOADS):
                tables = await rounds(name, store, contenders, options.runs, options.scale)
                for table in tables:
                    targets = TARGETS[store.kind].get(table[0].workload, {})
                    print("\n".join([*lines(table), *verdicts(table, targets)]), flush=True)
                    found += table
                print(f"  load {load()}")
                save(options.json, facts, rows=found)


def _install(
    store: Store, side: type[Side], contenders: list[Contender], options: Options
) -> dict[str, str]:
    """Add the side to those that can run. Return settings and versions, or the obstacle."""
    try:
        python = python_of(side)
    except NotInstalled as error:
        print(f"{side.name:<20} could not be installed: {error}")
        return {"not installed": str(error)}
    contenders.append(Contender(side, Runner(store, side, python, options.worker_cpus)))
    names = [*requirements_of(side), "redis", "coredis", "asyncpg", "psycopg"]
    versions = packages(python, [name.partition("[")[0].partition("=")[0] for name in names])
    print(f"{side.name:<20} {', '.join(f'{n} {v}' for n, v in versions.items())}")
    return {**versions, **{f"setting: {name}": why for name, why in side.settings.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    add_options(parser, WORKLOADS, Path("bench-results/peers.json"), own_servers=True)
    parser.add_argument(
        "--side", action="append", default=[], help="libraries whose names begin so (default: all)"
    )
    options = options_of(parser, WORKLOADS)
    sides = tuple(parser.parse_args().side)
    try:
        chosen(sides, [side.name for of_store in PEERS.values() for side in of_store])
    except ValueError as error:
        parser.error(str(error))
    asyncio.run(run(options, sides))


main()
