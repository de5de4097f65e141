"""A system that starts no further thread costs jobs time, and nothing else."""

import threading
from datetime import timedelta
from typing import Any

import pytest

from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.outages import Pauses
from forge_jobs.runtime.passes import coordinator
from forge_jobs.runtime.runtime import QueueRuntime
from forge_jobs.runtime.shared import threads
from forge_jobs.storage.protocols import Storage
from tests.support.factories import counters
from tests.support.runtimes import a_runtime, job_because, quick_settings
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


class Refusals:
    """Refuses threads for handlers while ``last``, as the system would."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.last = True
        self.allowed = 0
        self.count = 0
        start: Any = threading.Thread.start

        def refuse(thread: threading.Thread) -> None:
            is_of_handler = thread.name.startswith("forge-jobs-handler-")
            if self.last and is_of_handler and not self.allowed:
                self.count += 1
                raise RuntimeError("can't start new thread")
            self.allowed -= is_of_handler and self.last
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refuse)
        monkeypatch.setattr(threads, "_PAUSES", Pauses(0.05, 30.0, jitter=0))


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> Refusals:
    return Refusals(monkeypatch)


@pytest.fixture
def handlers() -> HandlerRegistry:
    registry = HandlerRegistry()

    @registry.job("function", max_attempts=1)
    def function() -> str:
        return "ran in a thread"

    @registry.job("coroutine")
    async def coroutine() -> str:
        return "needs none"

    return registry


async def test_the_job_is_handed_back_and_runs_when_there_is_a_thread(
    storage: Storage, refusals: Refusals, handlers: HandlerRegistry
) -> None:
    async with a_runtime(storage, handlers, 3).start() as handle:
        first = (await handle.enqueue(EnqueueRequest("function"))).job_id
        job = await job_because(storage, first, Cause.RELEASED)
        assert (job.status, job.attempt, job.errors) == (JobStatus.PENDING, 0, ())
        assert job.due_at <= job.enqueued_at + timedelta(seconds=60)

        assert any("thread" in problem for problem in handle.health().problems)
        assert not handle.health().able_to_claim
        # Handlers of the event loop need no thread, also those behind others in the queue.
        other = (await handle.enqueue(EnqueueRequest("coroutine"))).job_id
        assert await handle.result(other, timeout=50) == "needs none"

        refusals.last = False
        assert await handle.result(first, timeout=50) == "ran in a thread"
        assert handle.health().able_to_claim


async def test_slots_are_planned_without_a_thread_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(coordinator, "_SLOTS_ON_THE_LOOP", -1)
    with monkeypatch.context() as refused:
        refused.setattr(threading.Thread, "start", refuse)
        plan = await coordinator._planned([], [], {})
    assert plan == await coordinator._planned([], [], {})


async def test_threads_are_tried_again_with_growing_pauses_and_no_claim_between(
    storage: Storage,
    refusals: Refusals,
    handlers: HandlerRegistry,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with a_runtime(storage, handlers, 3).start() as handle:
        await handle.enqueue_many([EnqueueRequest("function") for _ in range(20)])
        await wait_until(lambda: refusals.count > 6, description="threads are tried again")
        counted = await counters(storage)
        said = [record.args for record in caplog.records if record.name == threads.__name__]
        pauses = [args[1] for args in said if isinstance(args, tuple)]
    assert pauses[:4] == [0.05, 0.1, 0.2, 0.4]
    # One round of the workers, and what was held ahead for them.
    assert counted["claimed"] <= 12


async def test_the_threads_that_there_are_serve_all_queues_in_turn(
    storage: Storage, refusals: Refusals, handlers: HandlerRegistry
) -> None:
    refusals.allowed = 2
    runtime = QueueRuntime(storage, handlers, settings=quick_settings())
    async with runtime.with_queues(one=4, other=4).start() as handle:
        queues = ["one", "other"] * 20
        requests = [EnqueueRequest("function").options(queue=queue) for queue in queues]
        jobs = [each.job_id for each in await handle.enqueue_many(requests)]
        for job_id in jobs:
            assert await handle.result(job_id, timeout=50) == "ran in a thread"
        assert refusals.count, "all of the threads were started"
    found = await storage.jobs.get(jobs)
    assert {job.attempt for job in found.values()} == {1}
