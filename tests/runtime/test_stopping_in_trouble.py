"""A stop that falls into a claim, into the end of a job, or into an outage."""

from typing import Any

import anyio
import pytest

from forge_jobs.errors import Unavailable
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import JobStatus
from forge_jobs.runtime.pod.handle import QueueHandle
from forge_jobs.runtime.pod.stop_report import StopReport
from forge_jobs.storage.protocols import Storage
from tests.support.factories import get_job
from tests.support.faulty import Faults, faulty
from tests.support.runtimes import (
    QUEUE,
    a_runtime,
    found_no_work,
    in_progress,
    job_when,
    quick_settings,
    seconds,
)
from tests.support.waiting import wait_until

RUNNING = 20
DEAF = 3

pytestmark = pytest.mark.anyio


class Stage:
    """A store behind a switch, and a handler that ends on request."""

    def __init__(self, storage: Storage) -> None:
        self.faults = Faults()
        self.storage = faulty(storage, self.faults)
        self.handlers = HandlerRegistry()
        self.started, self.finish = anyio.Event(), anyio.Event()

        @self.handlers.job("slow")
        async def slow() -> str:
            self.started.set()
            await self.finish.wait()
            return "finished"

        self.request = slow.request()

    async def started_pod(self) -> QueueHandle:
        """Start a pod with a slot that makes no calls but beats."""
        settings = quick_settings(claim_ahead=seconds(0))
        handle = await a_runtime(self.storage, self.handlers, settings=settings).start()
        await found_no_work(handle)
        return handle


async def stopped_meanwhile(handle: QueueHandle, stage: Stage) -> StopReport:
    """Ask for a stop, and let the store answer once that is under way."""
    reports: list[StopReport] = []

    async def stop() -> None:
        reports.append(await handle.stop())

    async with anyio.create_task_group() as group:
        group.start_soon(stop)
        await wait_until(lambda: handle.health().draining, description="it drains")
        stage.faults.down = False
        if stage.faults.waiting["exchange"]:
            stage.faults.let_go("exchange")
    [report] = reports
    return report


async def test_a_job_claimed_while_the_pod_begins_to_stop_is_given_back(storage: Storage) -> None:
    stage = Stage(storage)
    handle = await stage.started_pod()
    stage.faults.hold_replies("exchange")
    outcome = await handle.enqueue(stage.request)
    await wait_until(lambda: stage.faults.waiting["exchange"], description="it is claimed")
    assert await in_progress(storage) == 1

    report = await stopped_meanwhile(handle, stage)

    job = await get_job(storage, outcome.job_id)
    assert report.is_clean
    assert (job.status, job.attempt, job.crashes) == (JobStatus.PENDING, 0, 0)
    assert not stage.started.is_set()
    assert await storage.procs.pods() == []


async def test_an_end_under_way_when_the_pod_begins_to_stop_is_stored_once(
    storage: Storage,
) -> None:
    stage = Stage(storage)
    handle = await stage.started_pod()
    outcome = await handle.enqueue(stage.request)
    await stage.started.wait()
    stage.faults.hold_replies("exchange")
    stage.finish.set()
    await wait_until(lambda: stage.faults.waiting["exchange"], description="its end is sent")

    report = await stopped_meanwhile(handle, stage)

    job = await get_job(storage, outcome.job_id)
    assert report.is_clean
    assert (job.status, job.result, job.attempt) == (JobStatus.DONE, '"finished"', 1)
    assert handle.health().lost_claims == 0


async def test_an_outage_that_ends_within_the_grace_leaves_nothing_behind(
    storage: Storage,
) -> None:
    stage = Stage(storage)
    handle = await stage.started_pod()
    outcome = await handle.enqueue(stage.request)
    await stage.started.wait()
    stage.faults.down = True
    stage.finish.set()
    await wait_until(
        lambda: handle.health().queues[QUEUE].store_failures, description="its end fails"
    )

    report = await stopped_meanwhile(handle, stage)

    job = await get_job(storage, outcome.job_id)
    assert report.is_clean
    assert (job.status, job.attempt, job.crashes) == (JobStatus.DONE, 1, 0)
    assert await storage.procs.pods() == []


async def test_a_storage_closed_before_the_stop_is_told_once_and_no_job_stays_behind(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    async with await storage.reopen() as closing:
        stage = Stage(closing)
        settings = quick_settings(
            claim_ahead=seconds(0), lease=seconds(1.5), fence_margin=seconds(0.3)
        )
        handle = await a_runtime(stage.storage, stage.handlers, RUNNING, settings=settings).start()
        outcomes = await handle.enqueue_many([stage.request] * RUNNING)
        await wait_until(lambda: handle._pod.running() == RUNNING, description="all run")
    stage.finish.set()
    await wait_until(
        handle._pod.served.tasks_over[0].done, description="nothing is stored any more"
    )
    assert handle.health().problems
    report = await handle.stop()

    told = [each for each in caplog.records if each.name == "forge_jobs.runtime.pod.tasks"]
    assert [each.message for each in told] == [
        "the storage was closed under the pod, which can neither claim nor end jobs any more "
        "(its jobs are revived once their claims are stale): this pod stops"
    ]
    job_ids = {outcome.job_id for outcome in outcomes}
    # A task may notice before the last connection is closed, and hand jobs back on it.
    assert set(report.unstored) <= job_ids
    assert stage.faults.calls["finalize"] == 0
    async with a_runtime(storage, stage.handlers, RUNNING, settings=settings).start():
        for job_id in job_ids:
            await job_when(storage, job_id, JobStatus.DONE)


class DeafToDraining(Faults):
    """The first calls that say that a pod drains fail."""

    async def call(self, method: str, function: Any, args: Any, kwargs: Any) -> Any:
        if method == "set_draining" and self.calls[method] < DEAF:
            self.calls[method] += 1
            raise Unavailable("the test")
        return await super().call(method, function, args, kwargs)


async def test_every_beat_says_that_the_pod_drains(storage: Storage) -> None:
    stage = Stage(storage)
    handle = await a_runtime(faulty(storage, DeafToDraining()), stage.handlers).start()
    outcome = await handle.enqueue(stage.request)
    await stage.started.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(handle.stop)

        async def is_known() -> bool:
            return all(pod.draining for pod in await storage.procs.pods())

        await wait_until(is_known, description="the store knows that the pod drains")
        assert await in_progress(storage) == 1
        stage.finish.set()

    assert (await get_job(storage, outcome.job_id)).status is JobStatus.DONE
    assert await storage.procs.pods() == []
