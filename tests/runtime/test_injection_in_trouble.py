"""Injected values while the store says nothing, jobs are cancelled, and a thousand ask at once."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import pytest

from forge_jobs import Depends, Fixed, HandlerRegistry, JobContext, Shared
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support.faulty import faulty
from tests.support.runtimes import a_runtime, ended, quick_settings, seconds
from tests.support.silence import silence
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


class Stage:
    """A dependency whose clean-up waits for the test."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.cleans, self.go_on = anyio.Event(), anyio.Event()
        self.handlers = HandlerRegistry()

    async def session(self, ctx: JobContext) -> AsyncIterator[int]:
        self.notes.append(f"opens {ctx.attempt}")
        try:
            yield ctx.attempt
        finally:
            self.cleans.set()
            await self.go_on.wait()
            self.notes.append(f"closes {ctx.attempt}")

    def register(self) -> Any:
        session = self.session

        async def uses(session: int = Depends(session)) -> int:
            return session

        return self.handlers.register(uses, "uses")


async def test_a_store_that_is_silent_during_a_clean_up_gets_the_end_afterwards(
    storage: Storage,
) -> None:
    stage = Stage()
    handler = stage.register()
    async with (
        silence() as faults,
        a_runtime(faulty(storage, faults), stage.handlers).start() as handle,
    ):
        outcome = await handle.enqueue(handler.request())
        await stage.cleans.wait()
        faults.silent = True
        await wait_until(lambda: faults.unanswered, description="a beat gets no answer")
        stage.go_on.set()
        await wait_until(lambda: "closes 1" in stage.notes, description="the clean-up goes on")
        job = (await storage.jobs.get([outcome.job_id]))[outcome.job_id]
        assert job.status is JobStatus.IN_PROGRESS
        faults.silent = False
        assert await handle.result(outcome, timeout=60) == 1
    assert stage.notes == ["opens 1", "closes 1"]


async def test_a_clean_up_that_outlasts_the_lease_under_a_silent_store_is_cut_and_repeated(
    storage: Storage,
) -> None:
    stage = Stage()
    handler = stage.register()
    settings = quick_settings(lease=seconds(1), fence_margin=seconds(0.3), patience=seconds(0.1))
    async with silence() as faults:
        runtime = a_runtime(faulty(storage, faults), stage.handlers, settings=settings)
        async with runtime.start() as handle:
            outcome = await handle.enqueue(handler.request())
            await stage.cleans.wait()
            faults.silent = True
            # The claim is lost, so the pod interrupts the clean-up. Another one runs the job.
            async with a_runtime(storage, stage.handlers, settings=settings).start():
                await wait_until(lambda: "opens 2" in stage.notes, description="a second run")
                stage.go_on.set()
                job = await ended(storage, outcome.job_id)
            faults.silent = False
    assert (job.status, job.attempt, job.crashes, job.result) == (JobStatus.DONE, 2, 1, "2")
    assert stage.notes.count("closes 2") == 1


async def test_a_stop_ends_while_a_clean_up_waits_and_the_store_is_silent(
    storage: Storage,
) -> None:
    stage = Stage()
    handler = stage.register()
    async with silence() as faults:
        handle = await a_runtime(faulty(storage, faults), stage.handlers).start()
        outcome = await handle.enqueue(handler.request())
        await stage.cleans.wait()
        faults.silent = True
        with anyio.fail_after(20):
            report = await handle.stop(timeout=0.2)
        assert report.unstored == (outcome.job_id,)
        assert not list(handle._pod.runs())
    assert stage.notes == ["opens 1"]


@pytest.mark.long
async def test_a_thousand_jobs_get_the_error_of_one_making_and_then_one_value(
    storage: Storage,
) -> None:
    handlers = HandlerRegistry()
    asking: set[int] = set()
    all_ask = anyio.Event()
    calls: list[int] = []

    async def asks(n: int) -> AsyncIterator[None]:
        asking.add(n)
        if len(asking) == 1_000:
            all_ask.set()
        yield
        await anyio.lowlevel.checkpoint()

    async def pool() -> str:
        calls.append(len(calls))
        await all_ask.wait()
        if len(calls) == 1:
            raise ConnectionError("the database starts")
        return "a pool"

    @handlers.job("uses", retry=Fixed(0))
    async def uses(n: int, asks: None = Depends(asks), pool: str = Shared(pool)) -> str:
        return pool

    async with a_runtime(storage, handlers, 1_000).start() as handle:
        outcomes = await handle.enqueue_many([uses.request(n) for n in range(1_000)])
        results = [await handle.result(outcome, timeout=300) for outcome in outcomes]
    assert results == ["a pool"] * 1_000
    assert calls == [0, 1]
    jobs = await storage.jobs.get([outcome.job_id for outcome in outcomes[:50]])
    assert {(job.attempt, job.errors[0].type) for job in jobs.values()} == {(2, "ConnectionError")}
    # Each job has the lines of its own run alone.
    lines = {job.errors[0].traceback.count("\n") for job in jobs.values()}
    assert max(lines) < 20, lines


async def test_what_one_job_adds_to_a_shared_error_is_not_on_the_other_jobs(
    storage: Storage,
) -> None:
    handlers = HandlerRegistry()
    asking: set[str] = set()
    all_ask = anyio.Event()

    async def translates(name: str) -> AsyncIterator[None]:
        asking.add(name)
        if len(asking) == 2:
            all_ask.set()
        try:
            yield
        except ConnectionError as error:
            error.add_note(f"for {name}")
            await anyio.lowlevel.checkpoint()
            raise

    async def pool() -> str:
        await all_ask.wait()
        error = ConnectionError("no route")
        error.add_note("tried twice")
        raise error

    @handlers.job("uses", max_attempts=1)
    async def uses(name: str, own: None = Depends(translates), pool: str = Shared(pool)) -> None:
        raise AssertionError("there is no pool")

    async with a_runtime(storage, handlers, 2).start() as handle:
        outcomes = await handle.enqueue_many([uses.request(name) for name in ("ada", "bob")])
        jobs = [await ended(storage, outcome.job_id) for outcome in outcomes]
    texts = [job.errors[0].traceback for job in jobs]
    assert ["tried twice" in text for text in texts] == [True, True]
    assert ["for ada" in text for text in texts] == [True, False]
    assert ["for bob" in text for text in texts] == [False, True]


def swallowing(began: anyio.Event) -> Callable[[], Any]:
    async def factory() -> AsyncIterator[str]:
        began.set()
        with contextlib.suppress(asyncio.CancelledError):
            await anyio.sleep_forever()
        yield "made in spite of it"

    return factory


async def test_a_job_that_is_cancelled_in_set_up_never_begins_although_a_factory_goes_on(
    storage: Storage,
) -> None:
    handlers = HandlerRegistry()
    notes: list[str] = []
    began = anyio.Event()
    made = swallowing(began)

    async def outer() -> AsyncIterator[None]:
        try:
            yield
        finally:
            notes.append("outer ends")

    @handlers.job("uses")
    async def uses(outer: None = Depends(outer), value: str = Depends(made)) -> None:
        notes.append("the handler begins")

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(uses.request())
        await began.wait()
        await handle.cancel(outcome.job_id)
        job = await ended(storage, outcome.job_id)
    assert (job.status, job.cause) == (JobStatus.CANCELLED, Cause.CANCELLED)
    assert notes == ["outer ends"]


async def test_a_stop_does_not_wait_for_a_thread_that_makes_a_value_of_the_pod(
    storage: Storage,
) -> None:
    handlers = HandlerRegistry()
    loop = asyncio.get_running_loop()
    began, let_go = anyio.Event(), threading.Event()

    def pool() -> Iterator[str]:
        loop.call_soon_threadsafe(began.set)
        let_go.wait()
        yield "a pool"

    @handlers.job("uses")
    async def uses(pool: str = Shared(pool)) -> str:
        return pool

    handle = await a_runtime(storage, handlers).start()
    outcome = await handle.enqueue(uses.request())
    await began.wait()
    try:
        with anyio.fail_after(20):
            await handle.stop(timeout=0.2)
        job = (await storage.jobs.get([outcome.job_id]))[outcome.job_id]
        assert (job.status, job.cause, job.attempt) == (JobStatus.PENDING, Cause.INTERRUPTED, 0)
        assert await storage.procs.pods() == []
    finally:
        let_go.set()
