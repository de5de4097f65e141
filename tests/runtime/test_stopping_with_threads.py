"""A stop of a process whose handlers leave something running: these claims are released last."""

import asyncio
import contextlib
import threading
from typing import Any

import anyio
import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.runtime.pod.signals import StopRequest
from forge_jobs.runtime.runtime import QueueRuntime
from forge_jobs.storage.protocols import Storage
from tests.support.factories import get_job
from tests.support.faulty import Faults, faulty
from tests.support.runtimes import a_runtime, quick_settings, seconds

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


class Order(Faults):
    """Remembers the calls one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []

    async def call(self, method: str, function: Any, args: Any, kwargs: Any) -> Any:
        if method != "wait_for_work":
            self.order.append(method)
        return await super().call(method, function, args, kwargs)


class Stage:
    """Handlers that do not end with their cancellation, until the test lets them go."""

    def __init__(self) -> None:
        self.handlers = HandlerRegistry()
        self.started, self.let_go, self.go_on = anyio.Event(), threading.Event(), anyio.Event()
        self.loop = asyncio.get_running_loop()
        self.handlers.job("asyncio", max_attempts=1)(self.waits_with_asyncio)
        self.handlers.job("anyio", max_attempts=1)(self.waits_with_anyio)
        self.handlers.job("swallows", max_attempts=1)(self.swallows)
        self.handlers.job("plain", max_attempts=1)(self.plain)
        self.handlers.job("idle", max_attempts=1)(self.leaves_idle_threads)

    def _wait(self) -> None:
        self.loop.call_soon_threadsafe(self.started.set)
        self.let_go.wait(60)

    async def waits_with_asyncio(self) -> None:
        await asyncio.to_thread(self._wait)

    async def waits_with_anyio(self) -> None:
        await anyio.to_thread.run_sync(self._wait)

    async def swallows(self) -> None:
        self.started.set()
        while not self.go_on.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.go_on.wait()

    def plain(self) -> None:
        self._wait()

    async def leaves_idle_threads(self) -> None:
        await asyncio.to_thread(int)
        await anyio.to_thread.run_sync(int)
        self.started.set()
        await anyio.sleep_forever()


@pytest.fixture
async def stage() -> Any:
    made = Stage()
    yield made
    made.let_go.set()
    made.go_on.set()


@pytest.mark.parametrize("kind", ["asyncio", "anyio", "swallows", "plain"])
async def test_the_claim_of_what_goes_on_is_released_by_the_last_call(
    storage: Storage, stage: Stage, kind: str
) -> None:
    calls, exits = Order(), list[int]()
    at_exit: list[str] = []

    def exit_process(code: int) -> None:
        exits.append(code)
        at_exit.extend(calls.order)

    settings = quick_settings(grace=seconds(0.4))
    options: dict[str, Any] = {"exit_abandons_threads": True, "exit_process": exit_process}
    handle = await a_runtime(
        faulty(storage, calls), stage.handlers, settings=settings, **options
    ).start()
    handler = stage.handlers.get(kind)
    assert handler is not None
    outcome = await handle.enqueue(handler.request())
    await stage.started.wait()

    report = await handle.stop()

    job = await get_job(storage, outcome.job_id)
    assert (job.status, job.attempt, job.crashes) == (JobStatus.PENDING, 0, 0)
    assert (exits, report.is_clean, at_exit[-1]) == ([0], True, "release")
    assert "unregister" in at_exit
    assert await storage.procs.pods() == []


async def one_that_swallows(
    storage: Storage, stage: Stage
) -> tuple[QueueRuntime, list[int], JobId]:
    """Return a runtime whose stop ends the process, the exit codes, and a job that does not end."""
    exits: list[int] = []
    options: dict[str, Any] = {"exit_abandons_threads": True, "exit_process": exits.append}
    settings = quick_settings(grace=seconds(0.4))
    runtime = a_runtime(storage, stage.handlers, settings=settings, **options)
    handler = stage.handlers.get("swallows")
    assert handler is not None
    return runtime, exits, (await JobClient(storage).enqueue(handler.request())).job_id


async def test_a_run_that_fails_releases_them_too_and_says_why_the_process_ends(
    storage: Storage, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    runtime, exits, job_id = await one_that_swallows(storage, stage)

    async def breaks() -> bool:
        await stage.started.wait()
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        await runtime.run_until(StopRequest(), breaks)

    job = await get_job(storage, job_id)
    assert (job.status, job.attempt, job.crashes) == (JobStatus.PENDING, 0, 0)
    assert exits == [1]
    told = [each for each in caplog.records if "the pod stops, because" in each.getMessage()]
    assert [each.exc_info is not None for each in told] == [True]


async def test_claims_can_be_handed_back_without_the_event_loop(
    storage: Storage, stage: Stage
) -> None:
    calls = Order()
    handle = await a_runtime(faulty(storage, calls), stage.handlers).start()
    handler = stage.handlers.get("idle")
    assert handler is not None
    outcome = await handle.enqueue(handler.request())
    await stage.started.wait()

    # Called by the loop's own thread, so that the loop does not turn meanwhile.
    assert handle.hand_back(10)

    left = [each for each in calls.order if each in ("unregister", "release")]
    assert left == ["unregister", "release"], "nothing is asked once others may run the job"

    job = await get_job(storage, outcome.job_id)
    assert (job.status, job.attempt, job.crashes) == (JobStatus.PENDING, 0, 0)
    assert await storage.procs.pods() == []
    await handle.stop(timeout=0)


async def test_a_pod_that_stops_by_itself_ends_its_process_with_1(
    storage: Storage, stage: Stage
) -> None:
    runtime, exits, _ = await one_that_swallows(storage, stage)

    async with anyio.create_task_group() as group:
        group.start_soon(runtime.run_until, StopRequest())
        await stage.started.wait()
        [reaper] = [each for each in asyncio.all_tasks() if each.get_name() == "forge-jobs reaper"]
        reaper.cancel()

    assert exits == [1]


async def test_idle_threads_of_pools_hold_nothing_back(storage: Storage, stage: Stage) -> None:
    exits: list[int] = []
    options: dict[str, Any] = {"exit_abandons_threads": True, "exit_process": exits.append}
    handle = await a_runtime(storage, stage.handlers, **options).start()
    handler = stage.handlers.get("idle")
    assert handler is not None
    outcome = await handle.enqueue(handler.request())
    await stage.started.wait()

    report = await handle.stop(timeout=0)

    job = await get_job(storage, outcome.job_id)
    assert (job.status, job.cause, exits) == (JobStatus.PENDING, Cause.INTERRUPTED, [])
    assert report.interrupted == (outcome.job_id,)
