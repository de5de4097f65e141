"""Roles of a process of a bench: fill, drain, enqueue, pick up, idle. Runs beside any side."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.side import JOBS_PER_CALL, Side
from bench.tracing import SqliteStatements
from bench.usage import own_cpu_seconds, own_rss_bytes, own_written_bytes

Report = Callable[[str, dict[str, Any]], None]
"""Tells the parent: ``ready``, ``mark`` or ``result``, with what there is to say."""

Go = Callable[[], Awaitable[None]]
"""Waits for the parent's next line."""

TICK = 0.005
QUIET_TICKS = 4
FIRST_RSS_AT = 10_000
CALLERS = 100


class Meter:
    """Measures the process between the start and :meth:`read`."""

    def __init__(self, side: Side, statements: SqliteStatements | None) -> None:
        self._side = side
        self._statements = statements
        self.restart()

    def restart(self) -> None:
        """Count from now on."""
        self._cpu = own_cpu_seconds()
        self._written = own_written_bytes()
        self._asked = self._statements.count if self._statements else 0
        self._checks = self._statements.checks if self._statements else 0
        self._borders = self._statements.borders if self._statements else 0
        self._rss = own_rss_bytes()
        self.started = time.monotonic()

    def read(self, finished: float) -> dict[str, Any]:
        """Return the costs of the process that stand beside a figure."""
        used = {
            "started": self.started,
            "finished": finished,
            "executed": self._side.tally.executed,
            "cpu": own_cpu_seconds() - self._cpu,
            "rss_start": self._rss,
            "rss_end": own_rss_bytes(),
            "own_costs": dict(self._side.own_costs()),
        }
        if self._side.work.url.startswith("sqlite"):
            used["written"] = own_written_bytes() - self._written
        if self._statements:
            used["statements"] = self._statements.count - self._asked
            used["borders"] = self._statements.borders - self._borders
            used["change_checks"] = self._statements.checks - self._checks
        return used


async def fill(side: Side, meter: Meter, report: Report, go: Go) -> None:
    """Make the store and enqueue ``work.jobs`` no-ops."""
    await side.prepare()
    async with side:
        report("ready", {})
        await go()
        meter.restart()
        await side.fill(side.work.jobs)
        report("result", meter.read(time.monotonic()))


async def drain(side: Side, meter: Meter, report: Report, go: Go) -> None:
    """From the worker's start until the store says that all is finished."""
    async with side:
        report("ready", {})
        await go()
        meter.restart()
        async with side.working():
            finished, early_rss = await _drained(side)
            report("result", meter.read(finished) | {"rss_early": early_rss})
            await go()


async def _drained(side: Side) -> tuple[float, int]:
    """Wait until drained. Return the time before the last question, and the memory after some jobs.

    The store is asked only when this process has run all jobs, or none for some ticks, and for a
    fifth of the time at most: a question is load.
    """
    seen, quiet, early_rss, ask_from = 0, 0, 0, 0.0
    while True:
        executed = side.tally.executed
        quiet = quiet + 1 if executed == seen else 0
        seen = executed
        if executed >= FIRST_RSS_AT and not early_rss:
            early_rss = own_rss_bytes()
        may_be_over = executed >= side.work.jobs or quiet >= QUIET_TICKS
        if may_be_over and (asked := time.monotonic()) >= ask_from:
            if await side.is_drained(side.work.target):
                return asked, early_rss
            quiet = 0
            answered = time.monotonic()
            ask_from = answered + 4 * (answered - asked)
        await asyncio.sleep(TICK)


async def enqueue_one(side: Side, meter: Meter, report: Report, go: Go) -> None:
    """Enqueue jobs one after the other, each awaited."""

    async def run() -> None:
        for number in range(side.work.jobs):
            await side.enqueue(number)

    await _enqueue(side, meter, report, go, run)


async def enqueue_callers(side: Side, meter: Meter, report: Report, go: Go) -> None:
    """Enqueue from a hundred callers of one client, each awaiting one job."""
    numbers = range(side.work.jobs)

    async def call(mine: range) -> None:
        for number in mine:
            await side.enqueue(number)

    def call_in_thread(mine: range) -> None:
        asyncio.run(call(mine))

    async def run() -> None:
        shares = [numbers[n::CALLERS] for n in range(CALLERS)]
        if side.threads:
            loop = asyncio.get_running_loop()
            with ThreadPoolExecutor(CALLERS) as pool:
                calls = [loop.run_in_executor(pool, call_in_thread, each) for each in shares]
                await asyncio.gather(*calls)
        else:
            await asyncio.gather(*(call(each) for each in shares))

    await _enqueue(side, meter, report, go, run)


async def enqueue_bulk(side: Side, meter: Meter, report: Report, go: Go) -> None:
    """Enqueue all in one call, or one by one where the library has no such call."""

    async def run() -> dict[str, float]:
        return {JOBS_PER_CALL: await side.enqueue_all(range(side.work.jobs))}

    await _enqueue(side, meter, report, go, run)


async def _enqueue(
    side: Side,
    meter: Meter,
    report: Report,
    go: Go,
    run: Callable[[], Awaitable[dict[str, float] | None]],
) -> None:
    await side.prepare()
    async with side:
        # The first call connects.
        await side.enqueue(-1)
        report("ready", {})
        await go()
        meter.restart()
        costs = await run()
        report("result", meter.read(time.monotonic()) | {"own_costs": costs or {}})


async def pickup(side: Side, meter: Meter, report: Report, go: Go) -> None:
    """Seconds from before the enqueue to the handler's first line, in one process."""

    async def run() -> None:
        for number in range(side.work.jobs):
            await asyncio.sleep(_gap())
            await side.enqueue_stamped(time.monotonic())
            await side.tally.arrivals(number + 2)

    await _pick_up(side, meter, report, go, run)


async def receive(side: Side, meter: Meter, report: Report, go: Go) -> None:
    """The worker of a pickup whose sender is another process."""
    await _pick_up(side, meter, report, go, lambda: side.tally.arrivals(side.work.jobs + 1))


async def _pick_up(
    side: Side, meter: Meter, report: Report, go: Go, run: Callable[[], Awaitable[None]]
) -> None:
    await side.prepare()
    async with side, side.working():
        # The first job is not counted: all one-time work is done with it.
        await side.enqueue_stamped(time.monotonic())
        await side.tally.arrivals(1)
        report("ready", {})
        await go()
        meter.restart()
        await run()
        used = meter.read(time.monotonic())
        report("result", used | {"pickups": side.tally.pickups[1:]})


async def send(side: Side, meter: Meter, report: Report, go: Go) -> None:
    """The sender for :func:`receive`."""
    async with side:
        report("ready", {})
        await go()
        meter.restart()
        for _ in range(side.work.jobs):
            await asyncio.sleep(_gap() + 0.05)
            await side.enqueue_stamped(time.monotonic())
        report("result", meter.read(time.monotonic()))


async def idle(side: Side, meter: Meter, report: Report, go: Go) -> None:
    """A worker with nothing to do, from one line of the parent to the next."""
    await side.prepare()
    async with side, side.working():
        report("ready", {})
        await go()
        meter.restart()
        report("mark", {})
        await go()
        report("result", meter.read(time.monotonic()))


def _gap() -> float:
    # Uneven, so that no poller of a fixed beat is met at the same phase each time.
    return random.uniform(0.005, 0.025)


Role = Callable[[Side, Meter, Report, Go], Awaitable[None]]

ROLES: dict[str, Role] = {
    role.__name__: role
    for role in (
        fill,
        drain,
        enqueue_one,
        enqueue_callers,
        enqueue_bulk,
        pickup,
        receive,
        send,
        idle,
    )
}
