"""The end of a run fails itself: in the rules of the handler, in the log, or in the store."""

import logging
from typing import Any

import pytest

from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.transitions import Exchange
from forge_jobs.storage.protocols import Storage
from tests.support.factories import get_job
from tests.support.faulty import Faults, faulty
from tests.support.runtimes import a_runtime, ended, job_when, quick_settings, seconds
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

WRONG = InvalidInput("value", "is not accepted by the database", "give another value")
"""An error that condemns one end alone."""


@pytest.mark.parametrize("trouble", [SystemExit(3), KeyboardInterrupt(), RuntimeError("rules")])
async def test_a_retry_policy_that_raises_anything_ends_nothing_but_its_run(
    storage: Storage, trouble: BaseException
) -> None:
    handlers = HandlerRegistry()

    def policy(attempt: int, error: BaseException | None) -> float:
        raise trouble

    @handlers.job("fails", retry=policy)
    async def fails() -> None:
        raise ValueError("boom")

    @handlers.job("fine")
    async def fine() -> str:
        return "fine"

    async with a_runtime(storage, handlers).start() as handle:
        failing = (await handle.enqueue(fails.request())).job_id
        job = await job_when(storage, failing, JobStatus.FAILED)
        assert job.errors[-1].message == "boom"
        assert await handle.result((await handle.enqueue(fine.request())).job_id, 10) == "fine"


async def test_a_log_that_raises_does_not_keep_a_job_from_ending(storage: Storage) -> None:
    handlers = HandlerRegistry()

    @handlers.job("fails", max_attempts=1)
    async def fails() -> None:
        raise ValueError("boom")

    def refuse(record: logging.LogRecord) -> bool:
        raise RuntimeError("a filter with a defect")

    ends = logging.getLogger("forge_jobs.runtime.queue.ends")
    ends.addFilter(refuse)
    try:
        async with a_runtime(storage, handlers).start() as handle:
            for _ in range(2):
                job_id = (await handle.enqueue(fails.request())).job_id
                job = await ended(storage, job_id)
                assert (job.status, job.errors[-1].message) == (JobStatus.DEAD, "boom")
    finally:
        ends.removeFilter(refuse)


@pytest.fixture
def faults() -> Faults:
    """The switch of :func:`refusing`."""
    return Faults()


@pytest.fixture
def refusing(storage: Storage, faults: Faults, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """A store to which each end of a claim has a wrong value."""
    behind = faulty(storage, faults)
    exchange = behind.jobs.exchange

    async def refuse_ends(queue: str, ends: Any, *others: Any) -> Exchange:
        if ends:
            raise WRONG
        answer: Exchange = await exchange(queue, ends, *others)
        return answer

    async def refuse(ends: Any) -> list[bool]:
        raise WRONG

    monkeypatch.setattr(behind.jobs, "exchange", refuse_ends, raising=False)
    monkeypatch.setattr(behind.jobs, "finalize", refuse, raising=False)
    return behind


def counting(runs: list[int]) -> tuple[HandlerRegistry, Handler[[], Any]]:
    """A job that leaves a mark in ``runs``."""
    handlers = HandlerRegistry()

    @handlers.job("counts")
    async def counts() -> None:
        runs.append(1)

    return handlers, counts


async def test_a_job_whose_end_no_store_takes_is_a_crash_and_runs_no_more_than_that(
    storage: Storage, refusing: Storage
) -> None:
    runs: list[int] = []
    handlers, counts = counting(runs)
    settings = quick_settings(lease=seconds(0.6), fence_margin=seconds(0.2))
    async with a_runtime(refusing, handlers, settings=settings).start() as handle:
        job_id = (await handle.enqueue(counts.request())).job_id
        job = await job_when(storage, job_id, JobStatus.DEAD)
        assert (job.cause, job.crashes) == (Cause.CRASHED, 3)
        # A claim of a pod that is slow for a moment ends before the run has begun.
        assert 1 <= len(runs) <= 3
        services = handle._pod.services
        await wait_until(lambda: not services.given_up, description="nothing of it is kept")
    assert (await get_job(storage, job_id)).status is JobStatus.DEAD


async def test_a_beat_older_than_an_end_no_store_takes_does_not_make_the_job_run_again(
    storage: Storage, refusing: Storage, faults: Faults
) -> None:
    runs: list[int] = []
    handlers, counts = counting(runs)
    settings = quick_settings(lease=seconds(20), fence_margin=seconds(1))
    async with a_runtime(refusing, handlers, settings=settings).start() as handle:
        services = handle._pod.services
        await wait_until(lambda: handle.health().queues["default"].grant, description="a slot")
        faults.hold_replies("heartbeat")
        await wait_until(lambda: faults.waiting["heartbeat"], description="a beat has been made")
        job_id = (await handle.enqueue(counts.request())).job_id
        await wait_until(lambda: services.given_up, description="the end is given up")

        faults.let_go("heartbeat")
        # The beat that waited does not list the claim. Two beats with the claim would give it back.
        seen = faults.calls["heartbeat"] + 4
        await wait_until(lambda: faults.calls["heartbeat"] >= seen, description="beats go on")

        assert len(runs) == 1
        assert [claim.job_id for claim in services.given_up] == [job_id]
    assert (await get_job(storage, job_id)).status is JobStatus.IN_PROGRESS
