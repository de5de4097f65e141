"""Jobs brought into each status by the protocols' own verbs."""

from typing import Any

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    claim_one,
    dead,
    done,
    enqueue_one,
    failed,
    finish,
    get_job,
    only,
)

_FIRST = -100


async def a_job(storage: Storage, lease: PodLease, status: JobStatus, **overrides: Any) -> JobId:
    """A stored job of ``status``, in the queue and of the kind that ``lease`` can claim."""
    if status is JobStatus.BLOCKED:
        parent = await enqueue_one(storage, delay=DAY, kind="tests.parent")
        return await enqueue_one(storage, after=(After(parent),), **overrides)
    if status is not JobStatus.PENDING:
        overrides.setdefault("priority", _FIRST)
    job_id = await enqueue_one(storage, **overrides)
    if status is JobStatus.PENDING:
        return job_id
    if status is JobStatus.CANCELLED:
        await storage.jobs.cancel(only(job_id))
        return job_id
    where = {name: overrides[name] for name in ("queue",) if name in overrides}
    kinds = [overrides.get("kind", "tests.noop")]
    claimed = await claim_one(storage, lease, kinds=kinds, **where)
    assert claimed.claim.job_id == job_id, "another job was due before this one"
    endings = {
        JobStatus.DONE: done('"result"'),
        JobStatus.DEAD: dead(),
        JobStatus.FAILED: failed(DAY),
    }
    if status in endings:
        assert await finish(storage, claimed, endings[status])
    assert (await get_job(storage, job_id)).status is status
    return job_id
