"""A run of a workload on a fresh store: the figure, and the costs."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench.children import Child, started
from bench.figures import median_costs, percentile
from bench.side import Side, Work
from bench.stores import Store, Used

SETTLE_SECONDS = 5.0
COUNTED = ("statements per job", "BEGIN, COMMIT per job")


class Run(Struct, frozen=True):
    """The figure of a run.

    :param costs: of one job, by name with unit. Memory is that of one process
    """

    value: float
    costs: Mapping[str, float] = {}


def counted_costs(costs: Mapping[str, float]) -> dict[str, float]:
    """Of a run that counted statements: those costs that counting does not change."""
    return {name: costs[name] for name in COUNTED if name in costs}


class Runner:
    """Runs the workloads of one side on one store.

    :param python: the interpreter of the side's environment
    :param cpus: processors for its processes. Empty: all
    """

    def __init__(
        self,
        store: Store,
        side: type[Side],
        python: Path | None = None,
        cpus: tuple[int, ...] = (),
    ) -> None:
        self._store = store
        self._side = side
        self._python = python
        self._cpus = cpus

    async def drain(
        self,
        jobs: int,
        workers: int,
        processes: int = 1,
        *,
        counted: bool = False,
        **options: Any,
    ) -> Run:
        """Jobs per second from the workers' start until all are stored as finished."""
        url = await self._store.fresh(counted=counted)
        work = await self.fill(url, jobs, workers, counted=counted, **options)
        # Due schedules enqueue theirs when the worker runs.
        return await self.drained(work, work.jobs, workers, processes)

    async def fill(
        self, url: str, jobs: int, workers: int = 100, *, counted: bool = False, **options: Any
    ) -> Work:
        """Put jobs in a store, made where it is missing. Return the work of the drain."""
        work = self._work(url, "fill", jobs, workers=workers, counted=counted, options=options)
        async with Child(work, self._python) as child:
            child.go()
            await child.next_report("result")
        await self._store.filled(url)
        if options.get("due"):
            return replace(work, jobs=jobs + options["schedules"])
        return work

    async def drained(self, filled: Work, target: int, workers: int, processes: int = 1) -> Run:
        """Run what ``filled`` left, until ``target`` jobs of the store have finished."""
        work = replace(filled, role="drain", workers=workers, processes=processes, target=target)
        async with started([work] * processes, self._python) as children:
            before = await self._store.used()
            for child in children:
                child.go()
            reports = await asyncio.gather(*(child.next_report("result") for child in children))
            used = (await self._store.used()).since(before)
        executed = sum(each["executed"] for each in reports)
        # Threads that count at once lose some.
        if executed < work.jobs * (0.9 if self._side.threads else 1.0):
            raise ValueError(f"{work.side}: {executed} of {work.jobs} jobs ran")
        seconds = min(each["finished"] for each in reports) - min(
            each["started"] for each in reports
        )
        return Run(work.jobs / seconds, _costs(reports, used, work))

    async def enqueue(self, how: str, jobs: int, *, counted: bool = False, **options: Any) -> Run:
        """Return jobs per second stored. ``how`` is ``one``, ``callers`` or ``bulk``."""
        url = await self._store.fresh(counted=counted)
        work = self._work(url, f"enqueue_{how}", jobs, counted=counted, options=options)
        async with Child(work, self._python) as child:
            before = await self._store.used()
            child.go()
            reports = await child.next_report("result")
            used = (await self._store.used()).since(before)
        return Run(jobs / (reports["finished"] - reports["started"]), _costs([reports], used, work))

    async def pickup(self, jobs: int) -> tuple[Run, Run]:
        """Return milliseconds, median and 99th percentile. Sender and worker are one process."""
        work = self._work(await self._store.fresh(), "pickup", jobs, workers=10)
        async with Child(work, self._python) as child:
            child.go()
            return _percentiles((await child.next_report("result"))["pickups"])

    async def pickup_from_another(self, jobs: int) -> tuple[Run, Run]:
        """Return the same with the sender in another process."""
        work = self._work(await self._store.fresh(), "receive", jobs, workers=10)
        async with (
            Child(work, self._python) as receiver,
            Child(replace(work, role="send"), self._python) as sender,
        ):
            receiver.go()
            sender.go()
            return _percentiles((await receiver.next_report("result"))["pickups"])

    async def idle(self, workers: int, seconds: float, **options: Any) -> Run:
        """Return the statements per second of a worker without work.

        Of Redis, the commands sent: a script is one, as a statement is one whatever it touches.
        """
        url = await self._store.fresh(counted=True)
        work = self._work(url, "idle", workers=workers, counted=True, options=options)
        async with Child(work, self._python) as child:
            await asyncio.sleep(SETTLE_SECONDS)
            child.go()
            await child.next_report("mark")
            before = await self._store.used()
            async with self._store.requests() as requests:
                await asyncio.sleep(seconds)
            used = (await self._store.used()).since(before)
            child.go()
            reports = await child.next_report("result")
        asked = reports.get("statements", used.statements) or 0
        borders = reports.get("borders", used.borders)
        costs = {"worker CPU, ms/s": 1_000 * reports["cpu"] / seconds}
        if used.cpu is not None:
            costs["server CPU, ms/s"] = 1_000 * used.cpu / seconds
        if requests is not None:
            asked = requests.sent
            costs["commands inside scripts per s"] = requests.inside / seconds
        if borders is not None:
            costs["BEGIN, COMMIT per s"] = borders / seconds
        if reports.get("change_checks"):
            costs["change checks per s"] = reports["change_checks"] / seconds
        return Run(asked / seconds, costs)

    def _work(
        self,
        url: str,
        role: str,
        jobs: int = 0,
        *,
        workers: int = 10,
        counted: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> Work:
        return Work(
            side=f"{self._side.__module__}:{self._side.__qualname__}",
            url=url,
            role=role,
            jobs=jobs,
            workers=workers,
            counted=counted,
            cpus=self._cpus,
            options=dict(options or {}),
        )


def _percentiles(pickups: list[float]) -> tuple[Run, Run]:
    milliseconds = [1_000 * seconds for seconds in pickups]
    return Run(percentile(milliseconds, 0.5)), Run(percentile(milliseconds, 0.99))


def _costs(reports: list[dict[str, Any]], used: Used, work: Work) -> dict[str, float]:
    mib = 1024**2
    costs = {
        "worker CPU, us/job": 1e6 * sum(each["cpu"] for each in reports) / work.jobs,
        "RSS at start, MiB": max(each["rss_start"] for each in reports) / mib,
        "RSS after, MiB": max(each["rss_end"] for each in reports) / mib,
    }
    if used.cpu is not None:
        costs["server CPU, us/job"] = 1e6 * used.cpu / work.jobs
    if used.wal is not None:
        costs["WAL, bytes/job"] = used.wal / work.jobs
    statements, borders = used.statements, used.borders
    if "statements" in reports[0]:
        statements = sum(each["statements"] for each in reports)
        borders = sum(each["borders"] for each in reports)
    if statements:
        costs["statements per job"] = statements / work.jobs
        if borders:
            costs["BEGIN, COMMIT per job"] = borders / work.jobs
    if "written" in reports[0]:
        costs["written, bytes/job"] = sum(each["written"] for each in reports) / work.jobs
    if reports[0].get("rss_early"):
        costs["RSS after 10,000, MiB"] = reports[0]["rss_early"] / mib
    costs |= median_costs([each["own_costs"] for each in reports])
    return costs
