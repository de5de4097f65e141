"""Due times that are thousands of years ahead, as for a job that runs when an operator says so."""

from datetime import UTC, datetime

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.jobs import After, JobStatus, Line, Unique
from forge_jobs.model.processes import PodLease
from forge_jobs.model.strikes import Effect, Strike, StrikeRule, struck_by
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    SECOND,
    claim,
    claim_one,
    done,
    enqueue_one,
    finish,
    get_job,
    only,
)

pytestmark = pytest.mark.anyio

FAR = datetime.max.replace(tzinfo=UTC)
HELD = struck_by(
    Strike(name="no", rule=StrikeRule(kind="tests.noop", effect=Effect.HOLD), by="ada", at=None)
)


async def settle(storage: Storage) -> None:
    while found := await storage.jobs.handovers(10):
        await storage.jobs.deliver([delivery(each) for each in found])


@pytest.mark.parametrize("way", ["parent", "sequence"])
async def test_a_job_that_waited_for_another_is_due_no_earlier(
    storage: Storage, lease: PodLease, way: str
) -> None:
    line = Line("a") if way == "sequence" else None
    first = await enqueue_one(storage, sequence=line)
    after = (After(first),) if way == "parent" else ()
    job_id = await enqueue_one(storage, run_at=FAR, after=after, sequence=line)
    assert (await get_job(storage, job_id)).status is JobStatus.BLOCKED
    assert await finish(storage, await claim_one(storage, lease), done())
    await settle(storage)

    job = await get_job(storage, job_id)
    assert (job.status, job.due_at) == (JobStatus.PENDING, FAR)
    assert await claim(storage, lease) == []


async def test_run_now_makes_the_job_due(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    job_id = await enqueue_one(storage, run_at=FAR, expires_at=FAR)
    assert (await storage.jobs.run_now(only(job_id))).changed == (job_id,)
    assert (await get_job(storage, job_id)).due_at == clock.now()
    assert (await claim_one(storage, lease)).claim.job_id == job_id


async def test_a_job_that_a_strike_held_is_due_no_earlier(
    storage: Storage, lease: PodLease
) -> None:
    job_id = await enqueue_one(storage, run_at=FAR, struck=HELD)
    assert await storage.jobs.release_struck([], 10) == 1
    job = await get_job(storage, job_id)
    assert (job.status, job.hold, job.due_at) == (JobStatus.PENDING, None, FAR)
    assert await claim(storage, lease) == []
    assert (await storage.jobs.run_now(only(job_id))).changed == (job_id,)
    assert (await claim_one(storage, lease)).claim.job_id == job_id


async def test_content_that_replaces_other_content_is_due_when_that_says(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    unique = Unique("a", mode="replace")
    job_id = await enqueue_one(storage, run_at=FAR, unique=unique)
    for due_at in (clock.now() + SECOND, FAR):
        await enqueue_one(storage, run_at=due_at, unique=unique)
        assert (await get_job(storage, job_id)).due_at == due_at
    assert await claim(storage, lease) == []
