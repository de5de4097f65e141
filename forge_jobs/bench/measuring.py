"""``forge-jobs bench``: a user's own store, measured by work of its own in a queue of its own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
from msgspec import Struct

from forge_jobs.clients.client import JobClient
from forge_jobs.clients.removing import remove_jobs
from forge_jobs.clock import SystemClock
from forge_jobs.errors import Conflict, ForgeJobsError, InvalidInput, NotFound
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.names import check_queue
from forge_jobs.model.queues import QueueSettings
from forge_jobs.runtime.runtime import QueueRuntime
from forge_jobs.runtime.shared.store_calls import CallMeter, metered
from forge_jobs.storage.protocols import Storage

PREFIX = "forge-bench"
"""Names of the queues of a bench begin so. Nothing else is touched."""

JOBS_PER_CALL = 100
MOST_JOBS = 20_000
"""Jobs that are stored at most, so that they are removed soon."""

_STARTED_WITHIN = 60.0
_BETWEEN_PICKUPS = 0.02
_SHARES = {"enqueue": 0.2, "enqueue_many": 0.2, "drain": 0.4, "pickup": 0.2}
_CLAIM = "exchange"
"""The call by which a pod stores ends and claims the next jobs."""


class Plan(Struct, frozen=True, kw_only=True):
    """The plan of a bench.

    :param seconds: for all parts together, 1 to 600. Start and clean-up come on top
    :param workers: jobs that run at once, 1 to 1,000
    :param queue: begins with ``forge-bench``
    """

    seconds: float = 10.0
    workers: int = 8
    queue: str = PREFIX

    def __post_init__(self) -> None:
        check_queue("queue", self.queue)
        if not self.queue.startswith(PREFIX):
            raise InvalidInput("queue", f"is {self.queue!r}", f"give a name that begins {PREFIX}")


class Measured(Struct, frozen=True, kw_only=True):
    """The figures of one part.

    :param count: calls, jobs or runs
    :param per_second: jobs per second. None where the pace was given
    :param p50_ms, p99_ms: of the calls, or of the waits. None when there were none
    """

    count: int
    per_second: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None


class Report(Struct, frozen=True, kw_only=True):
    """A store as measured. The field names are what ``--json`` prints.

    :param durability: what a commit is worth there, in words
    :param enqueue: one caller, one job a call
    :param enqueue_many: one caller, 100 jobs a call
    :param claim: calls that store the ends of runs and claim the next jobs
    :param drain: runs of a handler that does nothing
    :param pickup: from before the enqueue until the handler starts, while slots are free
    """

    store: str
    durability: str
    queue: str
    workers: int
    seconds: float
    enqueue: Measured
    enqueue_many: Measured
    claim: Measured
    drain: Measured
    pickup: Measured


class QueueInUse(ForgeJobsError):
    """The queue of the bench has jobs or pods, so the figures and the clean-up would be wrong."""


class WouldLead(ForgeJobsError):
    """The bench's pod would lead the fleet, and fire the schedules of others."""


async def measure(
    storage: Storage, plan: Plan, say: Callable[[str], None] = lambda _: None
) -> Report:
    """Measure a store, and leave no job and no queue behind, also when cancelled.

    :param say: hears which part begins
    :raises QueueInUse: nothing was done
    :raises WouldLead: no pod is live and there are schedules. Nothing was done
    """
    await _check_unused(storage, plan.queue)
    try:
        return await _Bench(storage, plan, say).run()
    finally:
        with anyio.CancelScope(shield=True):
            say("cleaning up")
            await _clean_up(storage, plan.queue)


async def _check_unused(storage: Storage, queue: str) -> None:
    pods = [pod for pod in await storage.procs.pods() if pod.lease_remaining > timedelta(0)]
    serving = sum(queue in pod.slots or queue in pod.pod.queues for pod in pods)
    counts = (await storage.jobs.counts([queue])).get(queue)
    jobs = sum(counts.by_status.values()) if counts else 0
    if serving or jobs:
        raise QueueInUse(
            f"queue {queue} is in use ({jobs} jobs, {serving} pods): another bench runs, or one "
            f"was killed; give --queue {PREFIX}-2, or remove what is left by forge-jobs queues "
            f"delete {queue} --with-jobs"
        )
    if not pods:
        waiting = [
            each for each in await storage.cron.schedules() if not each.paused and not each.deleted
        ]
        if waiting:
            raise WouldLead(
                f"no pod is live, so the pod of the bench would lead and fire {len(waiting)} "
                "schedules; start a worker, or pause the schedules"
            )


async def _clean_up(storage: Storage, queue: str) -> None:
    await remove_jobs(storage, [queue])
    try:
        await storage.config.delete_queue(queue)
    except (NotFound, Conflict):  # never made, or a program enqueues there meanwhile
        return


class _Bench:
    """A bench under way."""

    def __init__(self, storage: Storage, plan: Plan, say: Callable[[str], None]) -> None:
        self._storage = storage
        self._plan = plan
        self._say = say
        self._clock = SystemClock()
        self._handlers = HandlerRegistry()
        self._starts: list[float] = []
        self._wanted = 0
        self._started, self._all_started = asyncio.Event(), asyncio.Event()

        @self._handlers.job("forge_bench.noop", queue=plan.queue, keep_result=False)
        async def noop() -> None:
            self._starts.append(self._clock.elapsed())
            self._started.set()
            if len(self._starts) == self._wanted:
                self._all_started.set()

        self._noop = noop
        self._client = JobClient(storage, self._handlers)

    async def run(self) -> Report:
        plan = self._plan
        try:
            self._say(f"storing jobs in queue {plan.queue}")
            one = await self._enqueue(1, self._time_of("enqueue"), MOST_JOBS // 4)
            left = MOST_JOBS - one.count
            many = await self._enqueue(JOBS_PER_CALL, self._time_of("enqueue_many"), left)
            meter = CallMeter()
            self._wanted = one.count + many.count * JOBS_PER_CALL
            async with self._working(meter):
                self._say(f"running them with {plan.workers} workers")
                drain = await self._drain()
                claim = next((each for each in meter.take() if each.name == _CLAIM), None)
                await self._empty()
                self._say("waiting for single jobs")
                pickup = await self._pick_up()
        finally:
            await self._client.aclose()
        claims = Measured(count=0)
        if claim is not None:
            claims = Measured(count=claim.count, p50_ms=claim.p50_ms, p99_ms=claim.p99_ms)
        return Report(
            store=self._storage.name,
            durability=self._storage.durability,
            queue=plan.queue,
            workers=plan.workers,
            seconds=plan.seconds,
            enqueue=one,
            enqueue_many=many,
            claim=claims,
            drain=drain,
            pickup=pickup,
        )

    def _time_of(self, part: str) -> float:
        return self._plan.seconds * _SHARES[part]

    @asynccontextmanager
    async def _working(self, meter: CallMeter) -> AsyncIterator[None]:
        settings = QueueSettings(max_workers=self._plan.workers)
        runtime = QueueRuntime(metered(self._storage, meter), self._handlers, label="bench")
        async with runtime.with_queues(**{self._plan.queue: settings}).start():
            yield

    async def _enqueue(self, jobs: int, seconds: float, most: int) -> Measured:
        """Store jobs one call after the other. ``count`` is of the calls."""

        async def call() -> None:
            await self._client.enqueue_many([self._noop.request()] * jobs)

        async def one() -> None:
            await self._client.enqueue(self._noop.request())

        times = await self._repeat(one if jobs == 1 else call, seconds, max(most // jobs, 1))
        return _measured(times, jobs * len(times) / sum(times))

    async def _repeat(
        self, call: Callable[[], Awaitable[None]], seconds: float, most: int
    ) -> list[float]:
        """Call again and again, and return the seconds of each call. Once at least."""
        times: list[float] = []
        until = self._clock.elapsed() + seconds
        while not times or (self._clock.elapsed() < until and len(times) < most):
            began = self._clock.elapsed()
            await call()
            times.append(self._clock.elapsed() - began)
        return times

    async def _drain(self) -> Measured:
        """Run what is stored, as far as the time goes. Counted from the first start on."""
        with anyio.fail_after(_STARTED_WITHIN):
            await self._started.wait()
        with anyio.move_on_after(self._time_of("drain")):
            await self._all_started.wait()
        took = self._starts[-1] - self._starts[0]
        runs = len(self._starts)
        return Measured(count=runs, per_second=round((runs - 1) / took, 1) if took else None)

    async def _empty(self) -> None:
        """Remove what the time did not suffice for, and wait for runs under way."""
        queue = self._plan.queue
        await remove_jobs(self._storage, [queue])
        with anyio.move_on_after(_STARTED_WITHIN):
            while counts := (await self._storage.jobs.counts([queue])).get(queue):
                if not counts.by_status.get("in_progress") and not counts.due:
                    return
                await anyio.sleep(0.05)

    async def _pick_up(self) -> Measured:
        times: list[float] = []
        until = self._clock.elapsed() + self._time_of("pickup")
        while not times or self._clock.elapsed() < until:
            self._started.clear()
            sent = self._clock.elapsed()
            await self._client.enqueue(self._noop.request())
            with anyio.fail_after(_STARTED_WITHIN):
                await self._started.wait()
            times.append(self._starts[-1] - sent)
            await anyio.sleep(_BETWEEN_PICKUPS)
        return _measured(times)


def _measured(times: Sequence[float], per_second: float | None = None) -> Measured:
    ordered = sorted(times)

    def at(share: float) -> float:
        return round(1_000 * ordered[max(int(-(-len(ordered) * share // 1)) - 1, 0)], 3)

    rate = None if per_second is None else round(per_second, 1)
    return Measured(count=len(times), per_second=rate, p50_ms=at(0.5), p99_ms=at(0.99))


def sentences(report: Report) -> list[str]:
    """The report for people: what each figure means."""
    one, many, claim = report.enqueue, report.enqueue_many, report.claim
    drain, pickup = report.drain, report.pickup
    return [
        f"{report.store}: {report.durability}",
        "",
        f"enqueue       {_rate(one)}, {_spread(one)} a call: one caller, one job a call",
        f"enqueue_many  {_rate(many)}, {_spread(many)} a call: one caller, {JOBS_PER_CALL} jobs "
        "a call",
        f"claim         {_spread(claim)} a call: ends of runs are stored, and the next jobs taken",
        f"drain         {_rate(drain)}: one process, {report.workers} at once, a handler that "
        "does nothing",
        f"pickup        {_spread(pickup)}: from the enqueue to the start, with free workers",
        "",
        "p50: half of them were not slower. p99: 99 of 100 were not slower. The figures are of",
        "this machine, the way to the store, and what else the store does now.",
    ]


def _rate(part: Measured) -> str:
    return "too few" if part.per_second is None else f"{part.per_second:,.0f} jobs/s"


def _spread(part: Measured) -> str:
    if part.p50_ms is None or part.p99_ms is None:
        return "too few"
    return f"p50 {part.p50_ms:,.3g} ms, p99 {part.p99_ms:,.3g} ms"
