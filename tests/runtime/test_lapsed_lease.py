"""A pod whose lease ran out although the store was within reach all the time."""

import pytest

from forge_jobs.model.jobs import Cause, ClaimedJob, JobStatus
from forge_jobs.model.queues import QueueState
from forge_jobs.runtime.queue.worker import Worker
from forge_jobs.storage.protocols import Storage
from tests.runtime.test_slots import RunGate
from tests.support.factories import times_claimed
from tests.support.runtimes import a_runtime, ended, job_because, job_when
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


async def test_handlers_end_with_the_slots_they_ran_in_and_their_jobs_lose_nothing(
    storage: Storage,
) -> None:
    hall = RunGate()
    async with a_runtime(storage, hall.handlers, 1).start() as handle:
        outcome = await handle.enqueue(hall.enters.request(0))
        first = await job_when(storage, outcome.job_id, JobStatus.IN_PROGRESS)
        await wait_until(lambda: hall.inside == 1, description="the handler runs")
        [pod] = await storage.procs.pods()

        # What a step of the store's clock, or an operator's hand, does to a pod.
        lease = handle._pod.services.lease
        await storage.procs.unregister(lease)

        async def runs_again() -> bool:
            job = (await storage.jobs.get([outcome.job_id]))[outcome.job_id]
            return job.status is JobStatus.IN_PROGRESS and job.token > first.token

        await wait_until(runs_again, description="it runs again under another lease")
        assert handle._pod.services.lease.epoch != lease.epoch
        hall.let_out(0)
        done = await ended(storage, outcome.job_id)
        assert (done.status, done.attempt, done.crashes) == (JobStatus.DONE, 1, 0)
        assert pod.pod.host_id == handle.host_id


async def test_a_job_given_out_before_the_process_stood_still_does_not_start(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hall = RunGate()
    take = Worker.take

    def take_and_stand_still(
        worker: Worker, job: ClaimedJob, state: QueueState | None, now: float
    ) -> Worker:
        take(worker, job, state, now)
        # As if no beat could be sent for a lease, before the handler's task gets a turn.
        handle._pod.services.fence.close()
        return worker

    async with a_runtime(storage, hall.handlers, 1).start() as handle:
        monkeypatch.setattr(Worker, "take", take_and_stand_still)
        outcome = await handle.enqueue(hall.enters.request(0))
        job = await job_because(storage, outcome.job_id, Cause.RELEASED)
    assert hall.inside == 0
    assert (job.status, job.attempt, await times_claimed(storage)) == (JobStatus.PENDING, 0, 1)
