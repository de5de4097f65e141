"""Starting, working, stopping."""

import asyncio
import os
import signal
import threading
from collections import Counter

import anyio
import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.errors import ConfigError, Unavailable
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.queues import QueueSettings
from forge_jobs.runtime.runtime import QueueRuntime
from forge_jobs.storage.protocols import Storage
from tests.support.faulty import Faults, faulty
from tests.support.runtimes import a_runtime, ended, in_progress, quick_settings, seconds
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


def echo_handlers() -> HandlerRegistry:
    handlers = HandlerRegistry()

    @handlers.job("echo")
    async def echo(n: int) -> int:
        return n

    return handlers


async def test_a_runtime_without_a_queue_is_refused_and_the_error_names_forge_queues(
    storage: Storage,
) -> None:
    with pytest.raises(ConfigError, match="FORGE_QUEUES"):
        QueueRuntime(storage, echo_handlers()).start()
    with pytest.raises(ConfigError, match="FORGE_QUEUES"):
        await QueueRuntime(storage, echo_handlers()).run()


async def test_the_order_in_which_queues_are_named_drops_no_settings(storage: Storage) -> None:
    settings = QueueSettings(max_workers=7)
    runtime = (
        QueueRuntime(storage, echo_handlers(), settings=quick_settings())
        .ensure_queue("one", settings)
        .with_queues("one", two=None)
        .ensure_queue("two", settings)
        .with_queues(three=settings)
        .with_queues("three", three=None)
        .ensure_queue("three")
        .ensure_queue("four", settings)
        .with_queues(four=3)
    )
    async with runtime.start():
        declared = {queue.name: queue.settings for queue in await storage.config.queues()}
    assert [declared[name].max_workers for name in ("one", "two", "three", "four")] == [7, 7, 7, 3]


async def test_a_queue_that_is_only_named_keeps_the_settings_of_the_store(
    storage: Storage,
) -> None:
    await storage.config.ensure_queue("one", QueueSettings(max_workers=7))
    runtime = QueueRuntime(storage, echo_handlers(), settings=quick_settings())
    async with runtime.ensure_queue("one").with_queues("one").start():
        [queue] = await storage.config.queues()
    assert queue.settings.max_workers == 7


async def test_what_is_declared_after_the_start_is_refused(storage: Storage) -> None:
    runtime = a_runtime(storage, echo_handlers())
    async with runtime.start():
        with pytest.raises(ConfigError, match=r"with_queues\(\) was called after the start"):
            runtime.with_queues("more")
        with pytest.raises(ConfigError, match="before start"):
            runtime.ensure_queue("more")
        with pytest.raises(ConfigError, match="before start"):
            runtime.ensure_schedules([])
    assert [queue.name for queue in await storage.config.queues()] == ["default"]


async def test_awaited_it_runs_in_the_background_until_it_is_stopped(storage: Storage) -> None:
    handlers = echo_handlers()
    handle = await a_runtime(storage, handlers).start()
    outcome = await handle.enqueue(next(iter(handlers)).request(7))
    assert await handle.result(outcome.job_id, timeout=50) == 7
    report = await handle.stop()
    assert report.is_clean
    assert await handle.stop() == report
    assert await storage.procs.pods() == []


async def test_entered_it_stops_at_the_end_of_the_block_also_by_an_error(
    storage: Storage,
) -> None:
    with pytest.raises(ValueError, match="out"):
        async with a_runtime(storage, echo_handlers()).start():
            raise ValueError("out")
    assert await storage.procs.pods() == []


async def test_a_cancelled_block_stops_cleanly(storage: Storage) -> None:
    with anyio.move_on_after(30) as scope:
        async with a_runtime(storage, echo_handlers()).start():
            scope.cancel()
            await anyio.sleep_forever()
    assert await storage.procs.pods() == []


async def test_forty_jobs_keep_four_workers_busy_and_no_more_than_four(storage: Storage) -> None:
    """Handlers meet in fours: an idle worker, or a fifth, would break a meeting."""
    handlers = HandlerRegistry()
    meeting = asyncio.Barrier(4)
    now = most = 0
    claims: Counter[int] = Counter()

    @handlers.job("meets")
    async def meets(n: int) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        claims[n] += 1
        await meeting.wait()
        now -= 1

    async with a_runtime(storage, handlers, 4).start() as handle:
        outcomes = await handle.enqueue_many([meets.request(n) for n in range(40)])
        for outcome in outcomes:
            assert (await ended(storage, outcome.job_id)).attempt == 1
    assert most == 4
    assert claims == Counter(range(40))


async def test_threads_of_one_queue_run_side_by_side_up_to_its_slots(storage: Storage) -> None:
    handlers = HandlerRegistry()
    meeting = threading.Barrier(3, timeout=20)

    @handlers.job("meets")
    def meets() -> None:
        meeting.wait()

    async with a_runtime(storage, handlers, 3).start() as handle:
        outcomes = await handle.enqueue_many([meets.request() for _ in range(9)])
        for outcome in outcomes:
            assert (await ended(storage, outcome.job_id)).status is JobStatus.DONE


async def test_many_short_jobs_are_each_run_once(storage: Storage) -> None:
    handlers = HandlerRegistry()
    ran: Counter[int] = Counter()

    @handlers.job("counts")
    async def counts(n: int) -> None:
        ran[n] += 1

    async with a_runtime(storage, handlers, 10).start() as handle:
        await handle.enqueue_many([counts.request(n) for n in range(2_000)])
        await wait_until(lambda: len(ran) == 2_000, description="all have run", timeout=30)
        report = await handle.stop()
    assert set(ran.values()) == {1}
    assert report.is_clean
    counted = (await storage.jobs.counts(["default"]))["default"].by_status
    assert (counted["done"], sum(counted.values())) == (2_000, 2_000)


async def test_starting_and_stopping_again_and_again_leaves_nothing(storage: Storage) -> None:
    handlers = echo_handlers()
    echo = next(iter(handlers))
    for n in range(5):
        async with a_runtime(storage, handlers, 3).start() as handle:
            await handle.enqueue_many([echo.request(k) for k in range(n * 7)])
    assert await storage.procs.pods() == []
    assert await in_progress(storage) == 0
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(started_and_stopped, storage, handlers)
    assert await storage.procs.pods() == []
    assert await in_progress(storage) == 0


async def started_and_stopped(storage: Storage, handlers: HandlerRegistry) -> None:
    handle = await a_runtime(storage, handlers, 3).start()
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(handle.stop)


async def test_draining_lets_running_handlers_finish_and_starts_no_other(
    storage: Storage,
) -> None:
    handlers = HandlerRegistry()
    started, finish = anyio.Event(), anyio.Event()

    @handlers.job("slow")
    async def slow(n: int) -> int:
        started.set()
        await finish.wait()
        return n

    async with a_runtime(storage, handlers).start() as handle:
        first = await handle.enqueue(slow.request(1))
        await started.wait()
        second = await handle.enqueue(slow.request(2))
        async with anyio.create_task_group() as group:
            group.start_soon(handle.drain)
            await wait_until(lambda: handle.health().draining, description="it drains")
            finish.set()
        assert (await ended(storage, first.job_id)).status is JobStatus.DONE
        job = (await storage.jobs.get([second.job_id]))[second.job_id]
        assert (job.status, job.attempt) == (JobStatus.PENDING, 0)
        assert not handle.health().able_to_claim


async def test_hurry_ends_the_grace(storage: Storage) -> None:
    handlers = HandlerRegistry()
    started = anyio.Event()

    @handlers.job("slow")
    async def slow() -> None:
        started.set()
        await anyio.sleep_forever()

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(slow.request())
        await started.wait()
        async with anyio.create_task_group() as group:
            group.start_soon(handle.stop, 3600)
            await wait_until(lambda: handle.health().draining, description="it drains")
            handle.hurry()
        assert (await handle.stop()).interrupted == (outcome.job_id,)
    assert await in_progress(storage) == 0


async def test_run_drains_at_the_first_signal_and_hurries_at_the_second(
    storage: Storage,
) -> None:
    handlers = HandlerRegistry()
    started = anyio.Event()
    before = signal.getsignal(signal.SIGTERM)

    @handlers.job("slow")
    async def slow() -> None:
        started.set()
        await anyio.sleep_forever()

    settings = quick_settings(grace=seconds(3600))
    runtime = a_runtime(storage, handlers, settings=settings)
    async with JobClient(storage) as client:
        await client.enqueue(slow.request())
    run = asyncio.ensure_future(runtime.run())
    await started.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await wait_until(lambda: is_draining(storage), description="the pod drains")
    assert not run.done()
    os.kill(os.getpid(), signal.SIGINT)
    assert await run == 0
    assert await in_progress(storage) == 0
    assert await storage.procs.pods() == []
    assert signal.getsignal(signal.SIGTERM) == before


async def is_draining(storage: Storage) -> bool:
    return any(pod.draining for pod in await storage.procs.pods())


async def test_a_start_waits_for_the_store(storage: Storage) -> None:
    faults = Faults()
    faults.down = True
    handlers = echo_handlers()
    start = asyncio.ensure_future(a_runtime(faulty(storage, faults), handlers, 2).start().open())
    await wait_until(lambda: sum(faults.calls.values()) >= 2, description="it tried twice")
    faults.down = False
    handle = await start
    outcome = await handle.enqueue(next(iter(handlers)).request(1))
    assert await handle.result(outcome.job_id, timeout=50) == 1
    await handle.stop()


async def test_a_start_gives_up_on_a_store_that_never_comes(storage: Storage) -> None:
    faults = Faults()
    faults.down = True
    with pytest.raises(Unavailable):
        await a_runtime(faulty(storage, faults), echo_handlers(), 2, start_limit=0.2).start()
