"""Cancel, timeout, shutdown, lost claim, failure: five different ends."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import anyio
import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import Cause, Job, JobStatus
from forge_jobs.model.queues import RateLimit
from forge_jobs.model.transitions import Revival
from forge_jobs.runtime.pod.handle import QueueHandle
from forge_jobs.storage.protocols import Storage
from tests.support.factories import crashed, get_job
from tests.support.runtimes import (
    a_runtime,
    ended,
    in_progress,
    job_because,
    job_when,
    quick_settings,
    seconds,
)
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


class Stage:
    """Events that a handler under test waits for and sets."""

    def __init__(self) -> None:
        self.started = anyio.Event()
        self.go_on = threading.Event()
        self.reasons: list[str | None] = []
        self.handlers = HandlerRegistry()

    def waits(self, **options: Any) -> Any:
        """Return an ``async def`` handler that waits for its cancel."""

        @self.handlers.job("waits", **options)
        async def waits(ctx: JobContext) -> str:
            self.started.set()
            try:
                await anyio.sleep_forever()
            finally:
                self.reasons.append(ctx.stop_reason)
            return "never"

        return waits

    def polls(self, **options: Any) -> Any:
        """Return a ``def`` handler that ends when asked to stop."""
        loop = asyncio.get_running_loop()

        @self.handlers.job("polls", **options)
        def polls(ctx: JobContext) -> None:
            loop.call_soon_threadsafe(self.started.set)
            while not ctx.cancel_requested:
                self.go_on.wait(0.002)
            self.reasons.append(ctx.stop_reason)
            raise RuntimeError("stopped")

        return polls


async def lose_claim(storage: Storage, job: Job) -> None:
    """Have the job's claim revived by a reaper that finds it stale."""

    async def revive() -> bool:
        stale = await storage.jobs.stale_claims(timedelta(microseconds=1), 100)
        mine = [Revival(each.claim, crashed()) for each in stale if each.claim.job_id == job.id]
        return await storage.jobs.revive(mine, timedelta(microseconds=1)) == [True]

    await wait_until(revive, description="no beat comes between the look and the revival")


@pytest.mark.parametrize("shape", ["waits", "polls"])
async def test_a_cancel_by_another_client_reaches_the_handler_and_is_recorded(
    storage: Storage, shape: str
) -> None:
    stage = Stage()
    handler = getattr(stage, shape)()
    async with a_runtime(storage, stage.handlers).start() as handle:
        job_id = (await handle.enqueue(handler.request())).job_id
        await stage.started.wait()
        async with JobClient(storage) as other:
            totals = await other.cancel(job_id)
        assert totals.requested == 1
        job = await ended(storage, job_id)
    assert (job.status, job.cause) == (JobStatus.CANCELLED, Cause.CANCELLED)
    assert stage.reasons == ["cancel"]


@pytest.mark.parametrize("shape", ["waits", "polls"])
async def test_a_timeout_is_recorded_as_a_timeout_and_retried(storage: Storage, shape: str) -> None:
    stage = Stage()
    handler = getattr(stage, shape)(timeout=0.05, max_attempts=1)
    async with a_runtime(storage, stage.handlers).start() as handle:
        job = await ended(storage, (await handle.enqueue(handler.request())).job_id)
    assert (job.status, job.cause) == (JobStatus.DEAD, Cause.TIMED_OUT)
    assert job.errors[0].cause is Cause.TIMED_OUT
    assert stage.reasons == ["timeout"]


@pytest.mark.parametrize("shape", ["waits", "polls"])
async def test_a_shutdown_hands_the_attempt_back(storage: Storage, shape: str) -> None:
    stage = Stage()
    handler = getattr(stage, shape)(max_attempts=1)
    async with a_runtime(storage, stage.handlers).start() as handle:
        job_id = (await handle.enqueue(handler.request())).job_id
        await stage.started.wait()
        report = await handle.stop(timeout=0)
    job = (await storage.jobs.get([job_id]))[job_id]
    assert (job.status, job.cause, job.attempt) == (JobStatus.PENDING, Cause.INTERRUPTED, 0)
    assert stage.reasons == ["shutdown"]
    assert report.interrupted == (job_id,)
    assert report.is_clean


async def test_a_lost_claim_stops_the_handler_and_writes_nothing(storage: Storage) -> None:
    stage = Stage()
    handler = stage.waits()
    async with a_runtime(storage, stage.handlers).start() as handle:
        job_id = (await handle.enqueue(handler.request())).job_id
        await stage.started.wait()
        job = await job_when(storage, job_id, JobStatus.IN_PROGRESS)
        await storage.config.set_paused("default", True)
        await lose_claim(storage, job)
        await wait_until(lambda: stage.reasons, description="the handler was stopped")
        await wait_until(
            lambda: handle.health().lost_claims == 1, description="the lost claim was counted"
        )
    job = (await storage.jobs.get([job_id]))[job_id]
    assert stage.reasons == ["lost"]
    assert (job.status, job.cause, job.crashes) == (JobStatus.PENDING, Cause.CRASHED, 1)


async def test_a_success_after_the_cancel_stands(storage: Storage) -> None:
    handlers = HandlerRegistry()
    started = anyio.Event()

    @handlers.job("finishes")
    async def finishes() -> str:
        started.set()
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            return "finished all the same"
        return "never"

    async with a_runtime(storage, handlers).start() as handle:
        job_id = (await handle.enqueue(finishes.request())).job_id
        await started.wait()
        await handle.cancel(job_id)
        assert await handle.result(job_id, timeout=50) == "finished all the same"


async def test_a_cancel_of_a_failing_handler_wins(storage: Storage) -> None:
    handlers = HandlerRegistry()
    started = anyio.Event()

    @handlers.job("fails")
    async def fails() -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("on the way out")

    async with a_runtime(storage, handlers).start() as handle:
        job_id = (await handle.enqueue(fails.request())).job_id
        await started.wait()
        await handle.cancel(job_id)
        job = await ended(storage, job_id)
    assert job.status is JobStatus.CANCELLED


async def test_a_handler_that_swallows_its_cancellation_is_cancelled_again(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = HandlerRegistry()
    started = anyio.Event()
    swallowed = 0

    @handlers.job("stubborn")
    async def stubborn() -> None:
        nonlocal swallowed
        started.set()
        while swallowed < 3:
            try:
                await anyio.sleep_forever()
            except asyncio.CancelledError:
                swallowed += 1
        await anyio.sleep_forever()

    settings = quick_settings(grace=seconds(0.01))
    async with a_runtime(storage, handlers, settings=settings).start() as handle:
        job_id = (await handle.enqueue(stubborn.request())).job_id
        await started.wait()
        report = await handle.stop()
        assert report.abandoned == (job_id,)
        assert not report.left
        await wait_until(lambda: swallowed == 3, description="it was cancelled three times")
        job = await job_because(storage, job_id, Cause.INTERRUPTED)
        assert job.status is JobStatus.PENDING
        await wait_until(lambda: no_pods(storage), description="the pod has left")
    assert "swallows CancelledError" in caplog.text


async def no_pods(storage: Storage) -> bool:
    return not await storage.procs.pods()


async def test_the_handler_can_extend_its_time(storage: Storage) -> None:
    handlers = HandlerRegistry()
    extended = anyio.Event()

    @handlers.job("long", timeout=0.2, max_attempts=1)
    async def long(ctx: JobContext) -> str:
        ctx.extend_timeout(timedelta(hours=1))
        await anyio.sleep(0.5)
        extended.set()
        return "in time"

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(long.request())
        assert await handle.result(outcome.job_id, timeout=50) == "in time"


async def test_a_thread_keeps_its_claim_until_it_ends_and_then_says_what_stopped_it(
    storage: Storage,
) -> None:
    handlers = HandlerRegistry()
    loop = asyncio.get_running_loop()
    seen, release = asyncio.Event(), threading.Event()

    @handlers.job("deaf", timeout=0.05, max_attempts=1)
    def deaf(ctx: JobContext) -> None:
        while not ctx.cancel_requested:
            release.wait(0.002)
        loop.call_soon_threadsafe(seen.set)
        release.wait(100)
        raise RuntimeError("at last")

    settings = quick_settings(lease=seconds(3), fence_margin=seconds(0.3))
    async with a_runtime(storage, handlers, settings=settings).start() as handle:
        job_id = (await handle.enqueue(deaf.request())).job_id
        await seen.wait()
        await beats_for(storage, job_id, settings.lease)
        assert (await storage.jobs.get([job_id]))[job_id].status is JobStatus.IN_PROGRESS
        release.set()
        job = await ended(storage, job_id)
    assert (job.cause, job.crashes) == (Cause.TIMED_OUT, 0)


async def beats_for(storage: Storage, job_id: Any, duration: timedelta) -> None:
    """Wait until the job's claim has been beaten for over ``duration`` and more."""
    first = (await storage.jobs.get([job_id]))[job_id].heartbeat_at
    assert first is not None

    async def later() -> bool:
        now = (await storage.jobs.get([job_id]))[job_id].heartbeat_at
        return now is not None and now - first > 2 * duration

    await wait_until(later, description=f"beats for twice {duration}")


async def test_an_embedded_stop_reports_a_thread_and_leaves_when_it_ends(
    storage: Storage,
) -> None:
    handlers = HandlerRegistry()
    loop = asyncio.get_running_loop()
    started, release = asyncio.Event(), threading.Event()

    @handlers.job("deaf")
    def deaf() -> str:
        loop.call_soon_threadsafe(started.set)
        release.wait(30)
        return "late"

    handle = await a_runtime(storage, handlers).start()
    job_id = (await handle.enqueue(deaf.request())).job_id
    await started.wait()
    report = await handle.stop(timeout=0.01)
    assert report.abandoned == (job_id,)
    assert await in_progress(storage) == 1
    release.set()
    job = await ended(storage, job_id)
    assert job.status is JobStatus.DONE
    await wait_until(lambda: no_pods(storage), description="the pod has left")


async def test_a_process_that_ends_releases_the_claims_of_its_threads(storage: Storage) -> None:
    handlers = HandlerRegistry()
    loop = asyncio.get_running_loop()
    started, release = asyncio.Event(), threading.Event()

    @handlers.job("deaf", max_attempts=1)
    def deaf() -> None:
        loop.call_soon_threadsafe(started.set)
        release.wait(30)

    exits: list[int] = []
    options: dict[str, Any] = {"exit_abandons_threads": True, "exit_process": exits.append}
    handle = await a_runtime(storage, handlers, **options).start()
    job_id = (await handle.enqueue(deaf.request())).job_id
    await started.wait()
    report = await handle.stop(timeout=0.01)
    job = (await storage.jobs.get([job_id]))[job_id]
    release.set()
    assert (report.abandoned, report.is_clean, exits) == ((job_id,), True, [0])
    assert (job.status, job.attempt) == (JobStatus.PENDING, 0)


async def test_a_cancelled_claim_that_is_held_ahead_never_starts(storage: Storage) -> None:
    ran: list[int] = []
    handlers = HandlerRegistry()
    hold = anyio.Event()

    @handlers.job("quick")
    async def quick(n: int) -> None:
        ran.append(n)
        if n == 50:
            await hold.wait()

    settings = quick_settings(claim_ahead=seconds(30))
    async with a_runtime(storage, handlers, settings=settings).start() as handle:
        outcomes = await handle.enqueue_many([quick.request(n) for n in range(51)])
        await wait_until(lambda: ran[-1:] == [50], description="the pace is known")
        ahead = await handle.enqueue_many([quick.request(n) for n in range(100, 103)])
        wanted = ahead[1].job_id
        await claimed_ahead(handle, 3)
        await handle.cancel(wanted)
        job = await ended(storage, wanted)
        assert (job.status, job.started_at) == (JobStatus.CANCELLED, None)
        hold.set()
        await ended(storage, ahead[2].job_id)
    assert ran == [*range(51), 100, 102]
    assert len(outcomes) == 51


async def claimed_ahead(handle: QueueHandle, count: int) -> None:
    await wait_until(
        lambda: handle.health().queues["default"].held_ahead == count,
        description=f"{count} claims are held ahead",
    )


async def test_a_pause_lets_running_jobs_finish_and_gives_claims_back(storage: Storage) -> None:
    handlers = HandlerRegistry()
    hold = anyio.Event()
    ran: list[int] = []

    @handlers.job("quick")
    async def quick(n: int) -> None:
        ran.append(n)
        if n == 50:
            await hold.wait()

    settings = quick_settings(claim_ahead=seconds(30))
    async with a_runtime(storage, handlers, settings=settings).start() as handle:
        await handle.enqueue_many([quick.request(n) for n in range(51)])
        await wait_until(lambda: ran[-1:] == [50], description="the pace is known")
        more = await handle.enqueue_many([quick.request(n) for n in range(100, 103)])
        await claimed_ahead(handle, 3)
        await storage.config.set_paused("default", True)
        for outcome in more:
            await job_because(storage, outcome.job_id, Cause.RELEASED)
        hold.set()
        await wait_until(lambda: idle(storage), description="nothing is in progress")
        assert ran == [*range(51)]
        await storage.config.set_paused("default", False)
        for outcome in more:
            assert (await ended(storage, outcome.job_id)).attempt == 1


async def idle(storage: Storage) -> bool:
    return await in_progress(storage) == 0


@pytest.mark.parametrize(
    ("reason", "when"),
    [("cancel", "while it waits"), ("timeout", "before it waits"), ("shutdown", "while it waits")],
)
async def test_a_thread_that_waits_for_tokens_sees_a_stop(
    storage: Storage, reason: str, when: str
) -> None:
    handlers = HandlerRegistry()
    waits, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    seen: list[str] = []

    @handlers.job("waits", timeout=0.2 if reason == "timeout" else None, max_attempts=1)
    def waits_for_tokens(ctx: JobContext) -> None:
        assert ctx.sync.rate_limit.acquire("gh")
        loop.call_soon_threadsafe(waits.set)
        if when == "before it waits":
            go_on.wait(30)
        try:
            ctx.sync.rate_limit.acquire("gh", wait=3600)
        except Exception:
            seen.append("taken for a failure")
        finally:
            seen.append(str(ctx.stop_reason))

    limits = {"gh": RateLimit(1, per=1800)}
    runtime = a_runtime(storage, handlers, rate_limits=limits)
    async with runtime.start() as handle:
        job_id = (await handle.enqueue(waits_for_tokens.request())).job_id
        await waits.wait()
        [run] = handle._pod.runs()
        if reason == "cancel":
            await handle.cancel(job_id)
        stopping = asyncio.ensure_future(handle.stop(30)) if reason == "shutdown" else None
        if when == "before it waits" and reason != "shutdown":
            await wait_until(lambda: run.stop_reason, description="the run is being stopped")
        if stopping is not None:
            # The grace is long: only the end of the grace stops the run.
            handle.hurry()
            await wait_until(lambda: run.stop_reason, description="the run is being stopped")
        go_on.set()
        if stopping is not None:
            assert (await stopping).is_clean
            assert (await get_job(storage, job_id)).cause is Cause.INTERRUPTED
        else:
            causes = {"cancel": Cause.CANCELLED, "timeout": Cause.TIMED_OUT}
            assert (await ended(storage, job_id)).cause is causes[reason]
    assert seen == [reason]
