"""The program cancels a run while no handler of the run is active: the job loses no attempt."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import anyio
import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.errors import StorageError
from forge_jobs.handlers.outcomes import RateLimited
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import Cause, Claim, JobStatus
from forge_jobs.model.queues import RateLimit
from forge_jobs.storage.protocols import Storage
from tests.support.factories import claim_one, crashed, register, revive
from tests.support.runtimes import QUEUE, a_runtime, ended, job_because, seconds

pytestmark = pytest.mark.anyio


def cancel_the_run() -> None:
    """Cancel the task of the one run there is."""
    [task] = [each for each in asyncio.all_tasks() if "Worker._work" in repr(each.get_coro())]
    task.cancel()


@pytest.mark.parametrize("answer", ["none", "an error"])
async def test_a_run_that_is_cancelled_before_its_start_is_stored_is_handed_back(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    handlers = HandlerRegistry()
    record_start = storage.jobs.record_start
    calls = 0

    @handlers.job("crashy", max_attempts=2)
    async def crashy() -> None: ...

    async def cancelled_once(claims: Sequence[Claim]) -> list[bool]:
        nonlocal calls
        calls += 1
        if calls > 1:
            return await record_start(claims)
        if answer == "an error":
            asyncio.get_running_loop().call_later(0.01, cancel_the_run)
            raise StorageError("not now")
        # As a store's answer, later than the call: the run waits by then, on every kind of loop.
        await anyio.lowlevel.checkpoint()
        cancel_the_run()
        return [True]

    async with JobClient(storage, handlers) as client:
        outcome = await client.enqueue(crashy.request())
    lease = await register(storage, kinds=("crashy",))
    claimed = await claim_one(storage, lease, queue=QUEUE, kinds=("crashy",))
    assert await revive(storage, claimed, crashed(), seconds(0.000001))
    await storage.procs.unregister(lease)
    monkeypatch.setattr(storage.jobs, "record_start", cancelled_once, raising=False)
    async with a_runtime(storage, handlers).start():
        job = await ended(storage, outcome.job_id)

    assert (job.status, calls) == (JobStatus.DONE, 2)
    assert [error.cause for error in job.errors] == [Cause.CRASHED]


async def test_a_run_that_is_cancelled_while_it_asks_for_its_turn_waits_for_the_limit(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("waits", max_attempts=1)
    async def waits() -> Any:
        raise RateLimited("smtp")

    async def cancelled(*_: object) -> Sequence[timedelta]:
        cancel_the_run()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    monkeypatch.setattr(storage.config, "take_turns", cancelled)
    limits = {"smtp": RateLimit(1, per=3600)}
    async with a_runtime(storage, handlers, rate_limits=limits).start() as handle:
        job_id = (await handle.enqueue(waits.request())).job_id
        job = await job_because(storage, job_id, Cause.RATE_LIMITED)

    assert (job.status, job.attempt, job.errors) == (JobStatus.PENDING, 0, ())
