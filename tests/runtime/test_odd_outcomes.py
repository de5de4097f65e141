"""Any outcome of a handler ends the job, and the worker is free again."""

from datetime import timedelta
from typing import Any

import pytest

from forge_jobs.handlers.outcomes import Failed, Outcome, Snoozed, Throttled
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.runtime.pod.handle import QueueHandle
from forge_jobs.runtime.queue import pool
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime, ended, in_progress, job_because, quick_settings
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


def changed(outcome: Outcome, **attributes: Any) -> Outcome:
    for name, value in attributes.items():
        setattr(outcome, name, value)
    return outcome


class Bare(Snoozed):
    """An outcome without a delay, because the constructor sets none."""

    def __init__(self) -> None:
        Exception.__init__(self)


class Refusing(Throttled):
    @property
    def retry_after(self) -> timedelta | None:
        raise SystemExit("not this one")

    @retry_after.setter
    def retry_after(self, value: timedelta | None) -> None:
        pass


SPOILT: dict[str, tuple[Outcome, str]] = {
    "a delay that is a text": (changed(Snoozed(5), delay="soon"), "delay"),
    "a delay below zero": (changed(Snoozed(5), delay=timedelta(seconds=-1)), "delay"),
    "no delay at all": (Bare(), "delay"),
    "a retry_after that is a text": (changed(Throttled(5), retry_after="soon"), "retry_after"),
    "a retry_after that raises": (Refusing(), "not this one"),
    "a retry_in that is a list": (changed(Failed("x"), retry_in=[1]), "retry_in"),
}


def speaking(**outcomes: Outcome) -> HandlerRegistry:
    """Register a kind for each outcome, which raises the outcome, and the kind ``fine``."""
    handlers = HandlerRegistry()

    def add(name: str, outcome: Outcome) -> None:
        @handlers.job(name, max_attempts=1)
        async def says() -> None:
            raise outcome

    for name, outcome in outcomes.items():
        add(name, outcome)

    @handlers.job("fine")
    async def fine() -> str:
        return "fine"

    return handlers


async def the_worker_goes_on(handle: QueueHandle, storage: Storage) -> None:
    good = await handle.enqueue(EnqueueRequest("fine"))
    assert await handle.result(good.job_id, timeout=50) == "fine"
    await wait_until(lambda: not handle.health().queues["default"].running, description="free")
    assert await in_progress(storage) == 0


async def test_an_outcome_that_makes_no_sense_ends_its_job_as_failed_with_that_error(
    storage: Storage,
) -> None:
    handlers = speaking(**{name: outcome for name, (outcome, _) in SPOILT.items()})
    async with a_runtime(storage, handlers).start() as handle:
        ids = {name: (await handle.enqueue(EnqueueRequest(name))).job_id for name in SPOILT}
        for name, (_, named) in SPOILT.items():
            job = await ended(storage, ids[name])
            assert (job.status, job.cause) == (JobStatus.DEAD, Cause.FAILED), name
            assert named in job.errors[-1].message
        await the_worker_goes_on(handle, storage)


async def test_an_outcome_whose_class_is_returned_is_no_success(storage: Storage) -> None:
    handlers = speaking()

    @handlers.job("returns")
    async def returns() -> object:
        return Snoozed

    async with a_runtime(storage, handlers).start() as handle:
        job = await ended(storage, (await handle.enqueue(returns.request())).job_id)
        assert (job.status, job.cause, job.attempt) == (JobStatus.DEAD, Cause.FAILED, 1)
        assert "returned the class Snoozed" in job.errors[-1].message
        await the_worker_goes_on(handle, storage)


async def test_a_delay_changed_to_a_number_counts_as_seconds(storage: Storage) -> None:
    handlers = speaking(says=changed(Snoozed(5), delay=3600))
    async with a_runtime(storage, handlers).start() as handle:
        job_id = (await handle.enqueue(EnqueueRequest("says"))).job_id
        job = await job_because(storage, job_id, Cause.SNOOZED)
        assert job.claimed_at is not None
        assert job.due_at - job.claimed_at > timedelta(minutes=59)
        await the_worker_goes_on(handle, storage)


@pytest.mark.parametrize("retry_after", [-3600.0, timedelta(days=-3)])
async def test_a_retry_after_that_has_passed_still_cools_the_queue_down(
    storage: Storage, retry_after: Any
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("asks_too_late")
    async def asks_too_late() -> None:
        raise Throttled(retry_after)

    async with a_runtime(storage, handlers).start() as handle:
        job_id = (await handle.enqueue(asks_too_late.request())).job_id
        job = await job_because(storage, job_id, Cause.THROTTLED)
        [queue] = await storage.config.queues()
    assert job.errors == ()
    assert queue.cooldown_level == 1


async def test_a_decision_that_raises_ends_the_job_as_failed(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raising(*_: object) -> timedelta:
        raise ZeroDivisionError("no rules today")

    monkeypatch.setattr("forge_jobs.runtime.queue.ends._rules", raising)
    async with a_runtime(storage, speaking(says=Snoozed(5))).start() as handle:
        job_id = (await handle.enqueue(EnqueueRequest("says"))).job_id
        job = await ended(storage, job_id)
        assert (job.status, job.cause) == (JobStatus.DEAD, Cause.FAILED)
        assert "no rules today" in job.errors[-1].message
        await the_worker_goes_on(handle, storage)


async def test_an_end_that_cannot_be_noted_costs_its_claim_and_no_slot(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        monkeypatch.undo()
        raise RuntimeError("nothing works")

    settings = quick_settings(lease=timedelta(seconds=0.6), fence_margin=timedelta(seconds=0.1))
    runtime = a_runtime(storage, speaking(says=Snoozed(3600)), settings=settings)
    async with runtime.start() as handle:
        monkeypatch.setattr(pool, "decide", failing)
        job_id = (await handle.enqueue(EnqueueRequest("says"))).job_id
        await wait_until(lambda: handle.health().lost_claims == 1, description="the claim is lost")
        # A reaper ends the claim, since no beats come.
        job = await ended(storage, job_id)
        assert (job.cause, job.crashes) == (Cause.CRASHED, 1)
        await the_worker_goes_on(handle, storage)
