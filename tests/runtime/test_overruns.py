"""A handler that goes on past the timeout is seen: at once, meanwhile, and afterwards."""

import asyncio
import threading
from typing import Any

import pytest

from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.events import EventKind
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.runtime.pod.handle import QueueHandle
from forge_jobs.runtime.queue import overruns, run
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime, ended
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


class Stubborn:
    """Handlers that end when the test says so, whatever stops them."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.let_go = asyncio.Event()
        self.handlers = HandlerRegistry()

        @self.handlers.job("function", timeout=0.05, max_attempts=1)
        def function() -> str:
            self.go_on.wait()
            return "all the same"

        @self.handlers.job("coroutine", timeout=0.05, max_attempts=1)
        async def coroutine() -> str:
            while not self.let_go.is_set():
                try:
                    await self.let_go.wait()
                except asyncio.CancelledError:
                    continue
            return "all the same"

    def release(self) -> None:
        self.go_on.set()
        self.let_go.set()


async def overrun_events(handle: QueueHandle, job_id: JobId) -> list[Any]:
    events = await handle.storage.jobs.events(job_id=job_id)
    return [event for event in events if event.kind is EventKind.OVERRAN]


@pytest.mark.parametrize("kind", ["function", "coroutine"])
async def test_it_is_told_while_it_lasts_and_kept_with_the_success(
    storage: Storage, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run, "_OVERRUN_AFTER", 0.02)
    stubborn = Stubborn()
    handler = stubborn.handlers.get(kind)
    assert handler is not None
    async with a_runtime(storage, stubborn.handlers).start() as handle:
        job_id = (await handle.enqueue(handler.request())).job_id
        await wait_until(lambda: handle.health().overruns == 1, description="the overrun counts")
        stubborn.release()
        assert await handle.result(job_id, timeout=50) == "all the same"
        job = await ended(storage, job_id)
        await wait_until(lambda: overrun_events(handle, job_id), description="the event is there")
        [event] = await overrun_events(handle, job_id)
        assert handle.health().overruns == 1
    assert (job.status, job.cause, job.attempt) == (JobStatus.DONE, Cause.SUCCEEDED, 1)
    [error] = job.errors
    assert (error.type, error.cause) == ("Overran", Cause.TIMED_OUT)
    assert "past its timeout of 0:00:00.05" in error.message
    assert "timeout" in event.detail

    def warnings() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.name == overruns.__name__]

    await wait_until(warnings, description="the warning is logged")
    assert kind in warnings()[0]
    assert job_id in warnings()[0]


async def test_one_that_ends_before_anybody_could_warn_leaves_the_same_trace(
    storage: Storage,
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("cleans_up", timeout=0.02, max_attempts=1)
    async def cleans_up() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "saved what there was"
        return "never"

    async with a_runtime(storage, handlers).start() as handle:
        job_id = (await handle.enqueue(cleans_up.request())).job_id
        assert await handle.result(job_id, timeout=50) == "saved what there was"
        await wait_until(lambda: overrun_events(handle, job_id), description="the event is there")
        assert handle.health().overruns == 1
    job = await ended(storage, job_id)
    assert [error.type for error in job.errors] == ["Overran"]


async def test_a_timeout_that_ends_its_handler_is_no_overrun(storage: Storage) -> None:
    handlers = HandlerRegistry()

    @handlers.job("obeys", timeout=0.02, max_attempts=1)
    async def obeys() -> None:
        await asyncio.Event().wait()

    async with a_runtime(storage, handlers).start() as handle:
        job = await ended(storage, (await handle.enqueue(obeys.request())).job_id)
        assert handle.health().overruns == 0
    assert [error.type for error in job.errors] == ["TimeoutError"]
