"""A stop, a start and a cancelled program while the store says nothing at all."""

import asyncio
from typing import Any

import anyio
import pytest

from forge_jobs.errors import StorageError
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import JobStatus
from forge_jobs.runtime.pod import stopping
from forge_jobs.storage.protocols import Storage
from tests.support.factories import get_job
from tests.support.faulty import Faults, faulty
from tests.support.runtimes import a_runtime, found_no_work, quick_settings, seconds
from tests.support.silence import silence
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


@pytest.mark.parametrize("stubborn", [pytest.param(False, marks=pytest.mark.long), True])
async def test_a_stop_ends_although_no_call_is_answered(storage: Storage, stubborn: bool) -> None:
    async with silence() as faults:
        handlers = HandlerRegistry()
        started, let_go = anyio.Event(), anyio.Event()

        @handlers.job("slow")
        async def slow() -> None:
            started.set()
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    if not stubborn:
                        raise

        exits: list[int] = []
        options: dict[str, Any] = {"exit_abandons_threads": True, "exit_process": exits.append}
        handle = await a_runtime(faulty(storage, faults), handlers, **options).start()
        outcome = await handle.enqueue(slow.request())
        await started.wait()
        faults.silent = True
        await wait_until(lambda: faults.unanswered, description="a beat gets no answer")

        try:
            with anyio.fail_after(20):
                report = await handle.stop(timeout=0.2)
        finally:
            let_go.set()

        assert report.unstored == (outcome.job_id,)
        assert not report.left
        assert exits == ([1] if stubborn else [])
        assert report.abandoned == ((outcome.job_id,) if stubborn else ())
        await wait_until(lambda: not list(handle._pod.runs()), description="the handler ends")
    await wait_until(lambda: gone(storage), description="the store hears of the end")


async def gone(storage: Storage) -> bool:
    return await storage.procs.pods() == []


async def test_the_steps_of_a_stop_fit_into_what_is_promised() -> None:
    others = stopping._TO_END + 2 * stopping._TO_LEAVE
    assert others + stopping._TO_STORE_AWAY < 1
    assert others + stopping._TO_STORE < 4


async def test_a_store_that_is_away_when_the_handlers_end_has_no_more_than_a_moment(
    storage: Storage,
) -> None:
    async with silence() as faults:
        handle = await a_runtime(faulty(storage, faults), HandlerRegistry()).start()
        await found_no_work(handle)
        beat, time_for_store = handle._pod.heartbeat, handle._stopper._time_for_store
        assert time_for_store() == stopping._TO_STORE

        faults.down = True
        await wait_until(lambda: beat.failures, description="a beat fails")
        assert time_for_store() == stopping._TO_STORE_AWAY
        faults.down = False
        await wait_until(lambda: not beat.failures, description="a beat is answered")

        faults.silent = True
        await wait_until(lambda: faults.unanswered, description="a beat gets no answer")

        def is_away() -> bool:
            beat.last_success = beat.last_success and beat.last_success - 60
            return time_for_store() == stopping._TO_STORE_AWAY

        await wait_until(is_away, description="the silence has lasted for too long")
        faults.silent = False
        assert (await handle.stop()).is_clean


async def test_a_run_that_is_cancelled_takes_its_pod_down(storage: Storage) -> None:
    handlers = HandlerRegistry()
    reasons: list[str | None] = []
    started = anyio.Event()

    @handlers.job("waits")
    async def waits(ctx: JobContext) -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            reasons.append(ctx.stop_reason)

    runtime = a_runtime(storage, handlers, settings=quick_settings(grace=seconds(0.01)))
    run = asyncio.ensure_future(runtime.run())
    await wait_until(lambda: has_pods(storage, 1), description="the pod is there")
    from forge_jobs.clients.client import JobClient

    async with JobClient(storage, handlers) as client:
        await client.enqueue(waits.request())
    await started.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert reasons == ["shutdown"]
    assert await storage.procs.pods() == []


async def has_pods(storage: Storage, count: int) -> bool:
    return len(await storage.procs.pods()) == count


async def test_a_start_that_is_cancelled_leaves_no_pod(storage: Storage) -> None:
    faults = Faults()
    faults.hold_replies("register")
    starting = a_runtime(faulty(storage, faults), HandlerRegistry()).start()
    start = asyncio.ensure_future(starting.open())
    await wait_until(lambda: faults.waiting["register"], description="it registers")
    start.cancel()
    faults.let_go("register")
    await asyncio.wait({start})
    assert start.cancelled()
    await wait_until(lambda: gone(storage), description="the pod is gone")


async def test_a_heartbeat_that_cannot_open_its_connection_tries_again(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    behind = faulty(storage, Faults())
    reopen = behind.reopen
    troubles = iter([StorageError("the test"), OSError("the test")])

    async def reopen_at_last() -> Storage:
        for trouble in troubles:
            raise trouble
        return await reopen()

    monkeypatch.setattr(behind, "reopen", reopen_at_last)
    handlers = HandlerRegistry()
    async with a_runtime(behind, handlers).start() as handle:
        await wait_until(
            lambda: handle.health().able_to_claim, description="the heartbeat has its connection"
        )
        await found_no_work(handle)


class Slowness(Faults):
    """A store in which every call takes time."""

    def __init__(self) -> None:
        super().__init__()
        self.delay = 0.0

    async def call(self, method: str, function: Any, args: Any, kwargs: Any) -> Any:
        await anyio.sleep(self.delay)
        return await super().call(method, function, args, kwargs)


@pytest.mark.parametrize("hurried", [False, True])
async def test_a_slow_store_takes_the_ends_of_handlers_that_used_up_the_grace(
    storage: Storage, hurried: bool
) -> None:
    faults = Slowness()
    handlers = HandlerRegistry()
    started = anyio.Event()

    @handlers.job("endless")
    async def endless() -> None:
        started.set()
        await anyio.sleep_forever()

    handle = await a_runtime(faulty(storage, faults), handlers).start()
    outcome = await handle.enqueue(endless.request())
    await started.wait()
    faults.delay = 0.35

    if hurried:
        stop = asyncio.ensure_future(handle.stop(timeout=3600))
        await wait_until(lambda: handle.health().draining, description="it drains")
        handle.hurry()
        report = await stop
    else:
        report = await handle.stop(timeout=0.01)

    assert (report.interrupted, report.unstored) == ((outcome.job_id,), ())
    assert report.is_clean
    job = await get_job(storage, outcome.job_id)
    assert (job.status, job.attempt, job.crashes) == (JobStatus.PENDING, 0, 0)
    assert await gone(storage)


async def test_a_slow_store_is_waited_for_while_the_grace_lasts(storage: Storage) -> None:
    faults = Faults()
    handle = await a_runtime(faulty(storage, faults), HandlerRegistry()).start()
    faults.hold_replies("unregister")

    stop = asyncio.ensure_future(handle.stop(timeout=60))
    await wait_until(lambda: faults.waiting["unregister"], description="the pod says goodbye")
    done, _ = await asyncio.wait({stop}, timeout=0.5)
    faults.let_go("unregister")

    assert not done
    assert (await stop).is_clean


async def test_a_stop_without_jobs_tells_a_slow_store_that_it_leaves(storage: Storage) -> None:
    faults = Slowness()
    handle = await a_runtime(faulty(storage, faults), HandlerRegistry()).start()
    await found_no_work(handle)
    faults.delay = 1.0

    report = await handle.stop(timeout=0.1)

    assert (report.is_clean, report.exit_code) == (True, 0)
    assert await gone(storage)
    assert faults.calls["lower_grants"] == 0
