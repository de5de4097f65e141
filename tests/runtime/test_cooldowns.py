"""A throttled queue pauses. No pod on it looks dead, and no job is throttled for ever."""

from datetime import timedelta
from typing import Any

import anyio
import pytest

from forge_jobs.handlers.outcomes import Snoozed, Throttled
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.queues import CooldownPolicy, QueueSettings, QueueState
from forge_jobs.runtime.runtime import QueueRuntime
from forge_jobs.storage.protocols import Storage
from tests.support.factories import times_claimed
from tests.support.runtimes import (
    QUEUE,
    a_runtime,
    ended,
    in_progress,
    job_because,
    quick_settings,
    seconds,
)
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


async def the_queue(storage: Storage) -> QueueState:
    """Return the only queue, as of now."""
    [queue] = await storage.config.queues()
    return queue


async def test_a_cool_down_longer_than_the_lease_costs_nobody_a_claim_or_a_slot(
    storage: Storage,
) -> None:
    handlers = HandlerRegistry()
    go_on, started = anyio.Event(), anyio.Event()

    @handlers.job("slow")
    async def slow() -> str:
        started.set()
        await go_on.wait()
        return "undisturbed"

    @handlers.job("throttled")
    async def throttled() -> None:
        raise Throttled(retry_after=600)

    settings = quick_settings(lease=seconds(4), fence_margin=seconds(0.5))
    async with a_runtime(storage, handlers, 2, settings=settings).start() as handle:
        running = await handle.enqueue(slow.request())
        await started.wait()
        paused = await handle.enqueue(throttled.request())
        job = await job_because(storage, paused.job_id, Cause.THROTTLED)
        assert (job.status, job.attempt, job.snoozes) == (JobStatus.PENDING, 0, 1)
        # What the upstream asked for, not the minute of the policy.
        assert (await the_queue(storage)).cooldown_remaining > timedelta(seconds=500)
        await beats_for(storage, settings.lease * 2)
        waiting = await handle.enqueue(slow.request())
        job = (await storage.jobs.get([running.job_id]))[running.job_id]
        assert (job.status, job.crashes) == (JobStatus.IN_PROGRESS, 0)
        assert await times_claimed(storage) == 2
        assert handle.health().queues[QUEUE].grant == 2
        assert handle.health().able_to_claim
        go_on.set()
        assert await handle.result(running.job_id, timeout=50) == "undisturbed"
        assert await in_progress(storage) == 0
        await storage.config.clear_cooldown(QUEUE)
        assert await handle.result(waiting.job_id, timeout=50) == "undisturbed"


async def beats_for(storage: Storage, duration: timedelta) -> None:
    """Wait until the pod's newest beat is ``duration`` later than now."""
    [first] = await storage.procs.pods()

    async def later() -> bool:
        [pod] = await storage.procs.pods()
        assert pod.lease_remaining > timedelta(0)
        return pod.last_beat_at - first.last_beat_at > duration

    await wait_until(later, description=f"beats for {duration}")


@pytest.mark.parametrize("outcome", [Snoozed(0), Throttled()])
@pytest.mark.parametrize("bound", ["time", "count"])
async def test_a_job_that_is_handed_back_for_ever_ends_as_dead_and_says_so(
    storage: Storage, outcome: Exception, bound: str
) -> None:
    handlers = HandlerRegistry()
    runs = 0

    @handlers.job("never_now", max_snoozes=4 if bound == "count" else None)
    async def never_now() -> Any:
        nonlocal runs
        runs += 1
        raise outcome

    settings = quick_settings(snooze_budget=seconds(0.1 if bound == "time" else 0.000001))
    shortest = QueueSettings(cooldown=CooldownPolicy(base=timedelta(milliseconds=1)))
    runtime = QueueRuntime(storage, handlers, settings=settings)
    async with runtime.with_queues(default=shortest).start() as handle:
        job = await ended(storage, (await handle.enqueue(never_now.request())).job_id)
    assert (job.status, job.snoozes) == (JobStatus.DEAD, runs - 1)
    if bound == "count":
        assert runs == 5
        assert "max_snoozes is 4" in job.errors[-1].message
    else:
        assert runs > 2
        assert "snooze_budget is 0:00:00.1" in job.errors[-1].message
