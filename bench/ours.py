"""forge_jobs as a side. The options are in :class:`Options`."""

import asyncio
import gc
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec

from bench.side import JOBS_PER_CALL, Side, Work
from forge_jobs import (
    EnqueueRequest,
    HandlerRegistry,
    JobClient,
    JobContext,
    Limit,
    QueueRuntime,
    QueueSettings,
    Rate,
    RateLimit,
    Retention,
    open_storage,
    schedule,
)

LIMIT = "plenty"
PLENTY = Rate(1_000_000_000, per=1)
KEYS, EACH = 50, 1_000
WORDS = "payload of some size "


class Options(msgspec.Struct, forbid_unknown_fields=True):
    """Options that only our side has.

    :param queues: over how many the jobs and the worker's slots are spread
    :param kind: ``noop``, ``wait`` (sleeps ``wait_ms``), ``limited`` (takes a token first),
        ``rated`` (starts with a token of a declared rate) or ``keyed`` (each of 50 keys may have
        as many jobs in progress as the bench has workers)
    :param payload: bytes of each job's argument
    :param schedules: recurring jobs that the store holds beside
    :param due: these schedules are due at once, each for one job, else not for years
    :param waiting: jobs enqueued after those of the drain, behind which they stay
    :param count_batches: report how many jobs a call to the store ended
    """

    queues: int = 1
    kind: str = "noop"
    wait_ms: float = 0.0
    payload: int = 0
    schedules: int = 0
    due: bool = False
    waiting: int = 0
    count_batches: bool = False


class Ours(Side):
    """All defaults, except for the options of the workload."""

    name = "forge_jobs"
    store = "any"
    requirements = ()
    jobs = 50_000
    settings = {
        "max_workers": "workers x processes, the workload's own number",
        "keep_result": "False: a no-op has none, and no peer stores one here",
    }

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._batches: list[int] = []
        self.options = msgspec.convert(dict(work.options), Options)
        self._text = (WORDS * (self.options.payload // len(WORDS) + 1))[: self.options.payload]
        self._queues = [f"bench{n}" for n in range(self.options.queues)]

    async def open(self) -> None:
        self._storage = await open_storage(self.work.url)
        self._registry = self._handlers()
        self._client = JobClient(self._storage, self._registry)
        # Questions of the bench take no connection of the pod's.
        self._asking = await self._storage.reopen()

    async def close(self) -> None:
        await self._client.aclose()
        await self._asking.aclose()
        await self._storage.aclose()

    async def prepare(self) -> None:
        async with await open_storage(self.work.url):
            pass

    def _request(self, number: int) -> EnqueueRequest:
        payload: dict[str, object] = {"n": number}
        if self._text:
            payload["text"] = self._text
        if self.options.kind == "keyed":
            payload["host"] = number % KEYS
        queue = self._queues[number % len(self._queues)]
        return EnqueueRequest(f"bench.{self.options.kind}", payload, queue=queue)

    async def enqueue(self, number: int) -> None:
        await self._client.enqueue(self._request(number))

    async def enqueue_stamped(self, sent: float) -> None:
        await self._client.enqueue(
            EnqueueRequest("bench.stamp", {"sent": sent}, queue=self._queues[0])
        )

    async def enqueue_bulk(self, numbers: Sequence[int]) -> None:
        await self._client.enqueue_many([self._request(number) for number in numbers])

    async def fill(self, count: int) -> None:
        await self._fill(count)
        now = await self._storage.cron.now()
        next_at = now - timedelta(seconds=1) if self.options.due else now + timedelta(days=1_000)
        for n in range(self.options.schedules):
            request = EnqueueRequest("bench.noop", {"n": n}, queue=self._queues[0])
            spec = schedule(f"bench{n}", request, "0 0 29 2 *")
            await self._storage.cron.ensure_schedule(spec, next_at)
        await self._fill(self.options.waiting)

    async def _fill(self, count: int) -> None:
        # Several mebibytes a call, so that a large payload does not fill the memory.
        step = max(1, min(1_000, 8 * 1024**2 // (self.options.payload + 1)))
        for first in range(0, count, step):
            await self.enqueue_bulk(range(first, min(first + step, count)))

    def _handlers(self) -> HandlerRegistry:
        handlers = HandlerRegistry()
        tally = self.tally
        seconds = self.options.wait_ms / 1_000

        @handlers.job("bench.noop", keep_result=False)
        async def noop(n: int, text: str = "") -> None:
            tally.ran()

        @handlers.job("bench.wait", keep_result=False)
        async def wait(n: int, text: str = "") -> None:
            await asyncio.sleep(seconds)
            tally.ran()

        @handlers.job("bench.limited", keep_result=False)
        async def limited(ctx: JobContext, n: int) -> None:
            assert await ctx.rate_limit.acquire(LIMIT)
            tally.ran()

        @handlers.job("bench.rated", keep_result=False, rate=PLENTY)
        async def rated(n: int) -> None:
            tally.ran()

        @handlers.job("bench.keyed", keep_result=False, concurrency=Limit(EACH, key="host:{host}"))
        async def keyed(n: int, host: int) -> None:
            tally.ran()

        @handlers.job("bench.stamp", keep_result=False)
        async def stamp(sent: float) -> None:
            tally.arrive(sent)

        return handlers

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        slots = max(1, self.work.workers // len(self._queues)) * self.work.processes
        settings = QueueSettings(max_workers=slots, retention=Retention(done=timedelta(days=1)))
        runtime = QueueRuntime(
            self._storage,
            self._registry,
            rate_limits={LIMIT: RateLimit(capacity=1_000_000_000)},
        ).with_queues(**dict.fromkeys(self._queues, settings))
        if self.options.count_batches:
            self._count_batches()
        # As the worker command does.
        gc.collect()
        gc.freeze()
        async with runtime.start():
            yield

    def _count_batches(self) -> None:
        jobs: Any = self._storage.jobs
        exchange = jobs.exchange

        async def counted(queue: str, ends: Sequence[Any], *rest: Any) -> Any:
            if ends:
                self._batches.append(len(ends))
            return await exchange(queue, ends, *rest)

        jobs.exchange = counted

    def own_costs(self) -> Mapping[str, float]:
        if not self._batches:
            return {}
        return {JOBS_PER_CALL: sum(self._batches) / len(self._batches)}

    async def is_drained(self, target: int) -> bool:
        jobs = self._asking.jobs
        if len(self._queues) == 1:
            # Counted where they are stored, like the jobs, and read from a few rows beside however
            # many jobs: counting a million of them takes longer than some drains.
            [queue], now = self._queues, await self._asking.cron.now()
            minutes = await jobs.metrics(queue, now - timedelta(days=1), now + timedelta(days=1))
            return sum(each.counts.get("succeeded", 0) for each in minutes) >= target
        counts = await jobs.counts(self._queues)
        return sum(each.by_status.get("done", 0) for each in counts.values()) >= target
