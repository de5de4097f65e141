"""Hooks that raise, hang, outlast a stop or a claim: the cost is bounded, and no end is lost."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Annotated, Any

import anyio
import pytest

from forge_jobs import Depends, HandlerRegistry, JobContext, RunEnd, Secret
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.runtime.queue.run import StopReason
from forge_jobs.storage.protocols import Storage
from tests.runtime.test_hooks import _no_notes, notes, noting, outcome_of, raises
from tests.runtime.test_stopping_a_handler import lose_claim
from tests.support.runtimes import a_runtime, ended, job_when, quick_settings, seconds
from tests.support.waiting import wait_until

__all__ = ["_no_notes"]

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


def breaks() -> None:
    raise OSError("the pager is away")


async def breaks_on_loop() -> None:
    raise OSError("the pager is away")


def exits() -> None:
    raise SystemExit("the pager is away")


async def exits_on_loop() -> None:
    raise SystemExit("the pager is away")


def spoiled() -> Iterator[None]:
    yield
    raise OSError("the pager is away")


async def with_a_clean_up_that_raises(_: None = Depends(spoiled)) -> None: ...


BROKEN = [breaks, breaks_on_loop, exits, exits_on_loop, with_a_clean_up_that_raises]


@pytest.mark.parametrize("broken", BROKEN)
async def test_an_exception_is_kept_on_the_job_and_changes_no_end(
    storage: Storage, broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = HandlerRegistry(on_done=[broken, noting("after", is_async=True)])

    @handlers.job("work")
    async def work() -> int:
        return 7

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(work.request())
        assert await handle.result(outcome.job_id, timeout=50) == 7
        job = await ended(storage, outcome.job_id)
    assert (job.status, job.attempt, notes) == (JobStatus.DONE, 1, ["after"])
    assert [error.message for error in job.errors] == ["the pager is away"]
    assert f"raised by the hook {broken.__name__} (on_done)" in job.errors[0].traceback
    assert f"the hook {broken.__name__} (on_done) of job {job.id} (work) failed" in caplog.text


@pytest.mark.parametrize("broken", BROKEN)
async def test_the_error_of_the_handler_stays_the_first(storage: Storage, broken: Any) -> None:
    handlers = HandlerRegistry(on_error=broken)
    handlers.register(raises(ValueError("no")), "work", max_attempts=1)
    job = await outcome_of(storage, handlers, Cause.FAILED)
    assert [error.message for error in job.errors] == ["no"]
    assert f"and the hook {broken.__name__} (on_error) raised" in job.errors[0].traceback
    assert "ValueError: no" in job.errors[0].traceback


PATIENT = quick_settings(grace=seconds(20), patience=seconds(0.05))


@pytest.mark.parametrize("share", [1.0, 0.9], ids=["in_time", "early"])
async def test_a_hook_that_hangs_is_cancelled_and_its_job_ends(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    wait = asyncio.wait

    def rings(fs: Any, *, timeout: float | None = None, **options: Any) -> Any:
        # A timer of uvloop rings up to half a millisecond before its time.
        return wait(fs, timeout=None if timeout is None else share * timeout, **options)

    monkeypatch.setattr("forge_jobs.runtime.queue.injection.hook_runs.asyncio.wait", rings)

    async def hangs() -> None:
        try:
            await anyio.sleep_forever()
        except BaseException as error:
            notes.append(type(error).__name__)
            raise

    handlers = HandlerRegistry(on_done=[hangs, noting("too late", is_async=True)])

    @handlers.job("work")
    async def work() -> None: ...

    async with a_runtime(storage, handlers, settings=PATIENT).start() as handle:
        outcomes = await handle.enqueue_many([work.request(), work.request()])
        jobs = [await ended(storage, outcome.job_id) for outcome in outcomes]
    assert [(job.status, job.attempt) for job in jobs] == [(JobStatus.DONE, 1)] * 2
    for job in jobs:
        assert [error.type for error in job.errors] == ["TimeoutError"]
        assert job.errors[0].message == "the hook did not end within 0.05 s"
        assert "not called: other hooks have used the 0.05 s of all" in job.errors[0].traceback
    assert notes == ["CancelledError"] * 2


async def test_a_hook_that_cannot_be_stopped_is_left_behind(storage: Storage) -> None:
    released, go_on = asyncio.Event(), threading.Event()

    async def swallows() -> None:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                notes.append("swallowed")

    def blocks() -> None:
        go_on.wait(60)

    handlers = HandlerRegistry()
    stuck = [
        handlers.register(lambda: threading.current_thread().name, kind, on_done=hook)
        for kind, hook in (("swallows", swallows), ("blocks", blocks))
    ]
    handlers.register(lambda: threading.current_thread().name, "next")
    try:
        async with a_runtime(storage, handlers, settings=PATIENT).start() as handle:
            for handler in stuck:
                outcome = await handle.enqueue(handler.request())
                job = await ended(storage, outcome.job_id)
                assert job.status is JobStatus.DONE
                assert job.errors[0].type == "TimeoutError"
            used = await handle.result(outcome.job_id, timeout=50)
            following = handlers.get("next")
            assert following is not None
            after = await handle.enqueue(following.request())
            left = [task for task in asyncio.all_tasks() if "_caught" in repr(task)]
            assert len(left) == 1, "the end of the event loop would wait for the thread"
            # The thread in which the hook goes on is not used again.
            assert await handle.result(after.job_id, timeout=50) != used
    finally:
        released.set()
        go_on.set()
    assert notes


async def test_secrets_of_the_payload_are_hidden_in_the_error_of_a_hook(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    def leaks(end: RunEnd) -> None:
        notes.append(str(end.exception))
        assert end.error is None or "hunter2" not in end.error.message
        raise ValueError("hunter2 again")

    handlers = HandlerRegistry(on_error=leaks, on_done=leaks)

    @handlers.job("log.in", max_attempts=1)
    async def log_in(password: Annotated[str, Secret], fails: bool) -> None:
        if fails:
            raise LookupError(f"no user with {password}")

    async with a_runtime(storage, handlers).start() as handle:
        for fails in (True, False):
            outcome = await handle.enqueue(log_in.request("hunter2", fails))
            job = await ended(storage, outcome.job_id)
            assert "hunter2" not in repr(job.errors)
            assert len(job.errors) == 1
    assert notes == ["no user with hunter2", "None"]
    assert "the hook leaks (on_error)" in caplog.text
    assert "hunter2" not in caplog.text


async def test_a_stop_waits_for_a_hook(storage: Storage) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        began.set()
        await go_on.wait()
        notes.append("to the end")

    handlers = HandlerRegistry(on_done=waits)

    @handlers.job("work")
    async def work() -> None: ...

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(work.request())
        await began.wait()
        stopping = asyncio.create_task(handle.stop())
        pool = handle._pod.queues["default"].pool
        await wait_until(lambda: pool._draining, description="the pod drains")
        assert not stopping.done()
        go_on.set()
        await stopping
    job = await ended(storage, outcome.job_id)
    assert (job.status, job.attempt, job.errors, notes) == (JobStatus.DONE, 1, (), ["to the end"])


async def test_a_stop_without_grace_cuts_hooks_short_and_stores_the_end(storage: Storage) -> None:
    began = asyncio.Event()

    async def hangs() -> None:
        began.set()
        await anyio.sleep_forever()

    handlers = HandlerRegistry(on_done=[hangs, noting("too late", is_async=True)])

    @handlers.job("work")
    async def work() -> None: ...

    patient = quick_settings(grace=seconds(400), patience=seconds(100))
    async with a_runtime(storage, handlers, settings=patient).start() as handle:
        outcome = await handle.enqueue(work.request())
        await began.wait()
        report = await handle.stop(timeout=0)
    assert (report.abandoned, report.unstored) == ((), ())
    job = await ended(storage, outcome.job_id)
    assert (job.status, job.attempt, notes) == (JobStatus.DONE, 1, [])
    assert job.errors[0].message == "the hook had not ended when the worker had to stop"
    assert "not called: the worker had to stop" in job.errors[0].traceback


async def test_a_cancel_of_the_job_comes_too_late_for_a_hook(storage: Storage) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        began.set()
        await go_on.wait()
        notes.append("to the end")

    handlers = HandlerRegistry(on_done=waits)

    @handlers.job("work")
    async def work() -> None: ...

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(work.request())
        await began.wait()
        [run] = handle._pod.runs()
        await handle.cancel(outcome.job_id)
        run.stop(StopReason.CANCEL)
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        go_on.set()
        job = await ended(storage, outcome.job_id)
    assert (job.status, job.errors, notes) == (JobStatus.DONE, (), ["to the end"])


async def test_a_claim_that_is_lost_during_a_hook_runs_again_with_its_hooks(
    storage: Storage,
) -> None:
    async def is_reaped(ctx: JobContext) -> None:
        notes.append(f"attempt {ctx.attempt}")
        if ctx.attempt == 1:
            await lose_claim(storage, (await storage.jobs.get([ctx.job_id]))[ctx.job_id])

    handlers = HandlerRegistry(on_done=is_reaped)

    @handlers.job("work")
    async def work() -> None: ...

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(work.request())
        job = await job_when(storage, outcome.job_id, JobStatus.DONE)
        assert handle.health().lost_claims == 1
    assert (job.attempt, notes) == (2, ["attempt 1", "attempt 2"])
