"""The workloads. Each returns values of one run; completions are counted where they are stored."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio

from bench.counting import counter
from bench.figures import percentile
from forge_jobs import (
    EnqueueRequest,
    HandlerRegistry,
    JobClient,
    QueueHandle,
    QueueRuntime,
    QueueSettings,
    Retention,
    open_storage,
)
from forge_jobs.storage.protocols import Storage

handlers = HandlerRegistry()
picked_up: list[float] = []
arrived = anyio.Event()


@handlers.job("bench.noop", queue="bench", keep_result=False)
async def noop(n: int) -> None:
    """Nothing at all."""


@handlers.job("bench.stamp", queue="bench", keep_result=False)
async def stamp(sent: float) -> None:
    """Note how long the job took to arrive, on this machine's monotonic clock."""
    picked_up.append(time.perf_counter() - sent)
    arrived.set()


def requests(count: int) -> list[EnqueueRequest]:
    """``count`` no-op requests in the raw form, so that no figure includes argument checks."""
    return [EnqueueRequest("bench.noop", {"n": n}, queue="bench") for n in range(count)]


@asynccontextmanager
async def fresh_storage(url: str) -> AsyncIterator[Storage]:
    """An empty store; ``{n}`` in ``url`` has been filled in by the caller."""
    async with await open_storage(url) as storage:
        yield storage


@asynccontextmanager
async def running(storage: Storage, workers: int) -> AsyncIterator[QueueHandle]:
    """A runtime of one queue that has all its slots."""
    settings = QueueSettings(max_workers=workers, retention=Retention(done=timedelta(days=1)))
    async with QueueRuntime(storage, handlers).with_queues(bench=settings).start() as handle:
        yield handle


async def finished(storage: Storage) -> int:
    """How many jobs are stored as done."""
    counts = await storage.jobs.counts(["bench"])
    return counts["bench"].by_status.get("done", 0) if "bench" in counts else 0


async def drain(url: str, jobs: int, workers: int) -> float:
    """Jobs per second from the start of the runtime until all are stored as done."""
    async with fresh_storage(url) as storage:
        client = JobClient(storage)
        await client.enqueue_many(requests(jobs))
        started = time.perf_counter()
        async with running(storage, workers):
            while await finished(storage) < jobs:  # noqa: ASYNC110 - a store rings no event
                await anyio.sleep(0.01)
            seconds = time.perf_counter() - started
        await client.aclose()
    return jobs / seconds


async def enqueue_one_by_one(url: str, jobs: int) -> float:
    """Requests per second, each awaited before the next."""
    async with fresh_storage(url) as storage:
        client = JobClient(storage)
        batch = requests(jobs)
        started = time.perf_counter()
        for request in batch:
            await client.enqueue(request)
        seconds = time.perf_counter() - started
        await client.aclose()
    return jobs / seconds


async def enqueue_in_bulk(url: str, jobs: int) -> float:
    """Requests per second, all in one call."""
    async with fresh_storage(url) as storage:
        client = JobClient(storage)
        batch = requests(jobs)
        started = time.perf_counter()
        await client.enqueue_many(batch)
        seconds = time.perf_counter() - started
        await client.aclose()
    return jobs / seconds


async def enqueue_by_callers(url: str, jobs: int, callers: int) -> float:
    """Requests per second of ``callers`` tasks that share one client, each awaiting its own."""
    async with fresh_storage(url) as storage:
        client = JobClient(storage)
        batch = requests(jobs)

        async def call(mine: list[EnqueueRequest]) -> None:
            for request in mine:
                await client.enqueue(request)

        started = time.perf_counter()
        async with anyio.create_task_group() as group:
            for n in range(callers):
                group.start_soon(call, batch[n::callers])
        seconds = time.perf_counter() - started
        await client.aclose()
    return jobs / seconds


async def pickup(url: str, jobs: int) -> tuple[float, float]:
    """Milliseconds from before the enqueue to the handler's first line on an idle worker:
    the median and the 99th percentile."""
    global arrived  # noqa: PLW0603 - the handler has no other way to reach its caller
    async with fresh_storage(url) as storage, running(storage, 1) as handle:
        await handle.result((await handle.enqueue(stamp.request(0.0))).job_id, timeout=30)
        picked_up.clear()
        for _ in range(jobs):
            arrived = anyio.Event()
            await handle.enqueue(stamp.request(time.perf_counter()))
            await arrived.wait()
    milliseconds = [seconds * 1000 for seconds in picked_up]
    return percentile(milliseconds, 0.5), percentile(milliseconds, 0.99)


async def idle_statements(url: str, seconds: float) -> float:
    """What a pod with ten idle queues of ten workers each asks of its store per second."""
    async with fresh_storage(url) as storage:
        runtime = QueueRuntime(storage, handlers)
        for n in range(10):
            runtime = runtime.with_queues(**{f"idle{n}": 10})
        async with runtime.start():
            await anyio.sleep(5)
            count = counter(url)
            before = await count()
            await anyio.sleep(seconds)
            return (await count() - before) / seconds
