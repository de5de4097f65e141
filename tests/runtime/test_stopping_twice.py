"""A stop that is asked for again, cancelled, or met by handlers that clean up."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.runtime.pod.signals import StopRequest, on_stop_signals
from forge_jobs.runtime.pod.stop_report import StopReport
from forge_jobs.storage.protocols import Storage
from tests.support.backends import BACKENDS, forget
from tests.support.factories import get_job
from tests.support.faulty import Faults, faulty
from tests.support.runtimes import a_runtime, ended, job_because, quick_settings, seconds
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


@pytest.fixture
async def file(tmp_path: Path) -> Any:
    """A store for what has nothing to do with the store."""
    async with BACKENDS["sqlite"](tmp_path, None) as opened:
        yield opened
    await forget("sqlite", tmp_path)


class Stage:
    """A handler that waits until it is cancelled, and then takes time to clean up."""

    def __init__(self, clean_up: float = 0.0) -> None:
        self.handlers = HandlerRegistry()
        self.started, self.finish = anyio.Event(), anyio.Event()
        self.cancelled, self.cleaned = 0, False

        @self.handlers.job("waits", max_attempts=1)
        async def waits() -> str:
            self.started.set()
            try:
                await self.finish.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                await self._clean_up(clean_up)
                raise
            return "finished"

        self.request = waits.request()

    async def _clean_up(self, clean_up: float) -> None:
        try:
            await anyio.sleep(clean_up)
            self.cleaned = True
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


async def test_clean_up_at_a_stop_is_cancelled_no_second_time(file: Storage) -> None:
    stage = Stage(clean_up=0.6)
    handle = await a_runtime(
        file, stage.handlers, settings=quick_settings(grace=seconds(40))
    ).start()
    outcome = await handle.enqueue(stage.request)
    await stage.started.wait()

    stop = asyncio.ensure_future(handle.stop())
    await wait_until(lambda: handle.health().draining, description="it drains")
    handle.hurry()
    report = await stop

    assert (stage.cleaned, stage.cancelled) == (True, 1)
    assert (report.interrupted, report.is_clean) == ((outcome.job_id,), True)


async def test_a_second_hurry_ends_the_patience(file: Storage) -> None:
    stage = Stage(clean_up=60)
    settings = quick_settings(grace=seconds(3600), patience=seconds(900))
    handle = await a_runtime(file, stage.handlers, settings=settings).start()
    outcome = await handle.enqueue(stage.request)
    await stage.started.wait()

    stop = asyncio.ensure_future(handle.stop())
    await wait_until(lambda: handle.health().draining, description="it drains")
    handle.hurry()
    await wait_until(lambda: stage.cancelled == 1, description="it is cancelled")
    handle.hurry()

    assert (await stop).abandoned == (outcome.job_id,)
    for run in handle._pod.runs():
        run._cancel()
    await wait_until(lambda: not list(handle._pod.runs()), description="the handler ends")
    await wait_until(lambda: no_pods(file), description="the pod leaves")


async def no_pods(storage: Storage) -> bool:
    return not await storage.procs.pods()


async def test_handlers_are_cancelled_before_the_grace_ends(file: Storage) -> None:
    stage = Stage()
    settings = quick_settings(grace=seconds(100), patience=seconds(20))
    handle = await a_runtime(file, stage.handlers, settings=settings).start()
    stopper, now = handle._stopper, asyncio.get_running_loop().time()
    await handle.enqueue(stage.request)
    await stage.started.wait()

    stop = asyncio.ensure_future(handle.stop())
    await wait_until(lambda: handle.health().draining, description="it drains")

    assert 100 <= stopper._handlers_until() - now < 130
    assert stopper._handlers_until() - stopper._cancel_at() == pytest.approx(20)
    stage.finish.set()
    assert (await stop).is_clean


async def test_clean_up_after_fencing_has_most_of_the_margin(file: Storage) -> None:
    stage = Stage(clean_up=0.5)
    settings = quick_settings(lease=seconds(4), fence_margin=seconds(3.5))
    faults = Faults()
    handle = await a_runtime(faulty(file, faults), stage.handlers, settings=settings).start()
    outcome = await handle.enqueue(stage.request)
    await stage.started.wait()

    faults.down = True
    await wait_until(lambda: stage.cleaned, description="it has cleaned up")
    faults.down = False

    await job_because(file, outcome.job_id, Cause.INTERRUPTED)
    assert stage.cancelled == 1
    stage.finish.set()
    await ended(file, outcome.job_id)
    await handle.stop()


async def test_two_native_cancellations_do_not_close_the_store_under_a_stop(
    storage: Storage,
) -> None:
    stage = Stage()
    jobs: list[JobId] = []
    inside, leaving = anyio.Event(), anyio.Event()

    async def program() -> None:
        async with (
            await storage.reopen() as own,
            a_runtime(own, stage.handlers).start() as handle,
        ):
            jobs.append((await handle.enqueue(stage.request)).job_id)
            await stage.started.wait()
            try:
                inside.set()
                await anyio.sleep_forever()
            finally:
                leaving.set()

    task = asyncio.create_task(program())
    await inside.wait()
    task.cancel()
    await leaving.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    job = await get_job(storage, jobs[0])
    assert (job.status, job.attempt, job.crashes) == (JobStatus.PENDING, 0, 0)
    assert await storage.procs.pods() == []


async def test_a_cancelled_call_of_stop_hurries_it_and_waits(file: Storage) -> None:
    stage = Stage()
    settings = quick_settings(grace=seconds(3600))
    handle = await a_runtime(file, stage.handlers, settings=settings).start()
    outcome = await handle.enqueue(stage.request)
    await stage.started.wait()

    stop: asyncio.Task[StopReport] = asyncio.create_task(handle.stop())
    await wait_until(lambda: handle.health().draining, description="it drains")
    stop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stop

    job = await get_job(file, outcome.job_id)
    assert (job.status, job.attempt) == (JobStatus.PENDING, 0)
    assert await file.procs.pods() == []


async def test_a_run_whose_condition_fails_stops_in_good_order(file: Storage) -> None:
    async def fails() -> bool:
        raise RuntimeError("the test")

    request = StopRequest()
    with pytest.raises(RuntimeError, match="the test"):
        await a_runtime(file, HandlerRegistry()).run_until(request, fails)

    assert await file.procs.pods() == []


async def test_a_stop_that_is_asked_for_while_the_store_is_away_ends_the_start(
    file: Storage,
) -> None:
    faults, request = Faults(), StopRequest()
    faults.down = True

    async def never() -> bool:
        return False

    run = asyncio.ensure_future(
        a_runtime(faulty(file, faults), HandlerRegistry()).run_until(request, never)
    )
    await wait_until(lambda: faults.calls, description="it has asked the store")
    request.drain()

    assert await run == 0


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"])
async def test_stop_signals_drain_and_then_hurry(name: str) -> None:
    heard: list[str] = []
    signum = signal.Signals[name]
    before = signal.getsignal(signum)

    with on_stop_signals(
        lambda: heard.append("drain"), lambda: heard.append("hurry"), lambda: heard.append("heard")
    ):
        os.kill(os.getpid(), signum)
        await wait_until(lambda: "drain" in heard, description="it drains")
        os.kill(os.getpid(), signum)
        await wait_until(lambda: "hurry" in heard, description="it hurries")

    assert heard == ["heard", "drain", "heard", "hurry"]
    assert signal.getsignal(signum) is before


@pytest.mark.parametrize("name", ["SIGHUP", "SIGQUIT"])
async def test_signals_that_are_ignored_or_used_otherwise_stay_so(name: str) -> None:
    signum = signal.Signals[name]
    before = signal.signal(signum, signal.SIG_IGN)
    heard: list[str] = []
    try:
        with on_stop_signals(lambda: heard.append("drain"), lambda: heard.append("hurry")):
            os.kill(os.getpid(), signum)
            os.kill(os.getpid(), signal.SIGTERM)
            await wait_until(lambda: heard, description="another signal is heard")
        assert heard == ["drain"]
        assert signal.getsignal(signum) is signal.SIG_IGN
    finally:
        signal.signal(signum, before)
