"""Records with every field filled in. A test names only the fields that matter there."""

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import structs

from forge_jobs.errors import Locked
from forge_jobs.model.edits import content_of
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import HostId, JobId, new_host_id, new_job_id, new_worker_id
from forge_jobs.model.jobs import (
    Cause,
    Claim,
    ClaimedJob,
    EnqueueOutcome,
    ErrorRecord,
    Job,
    JobStatus,
    NewJob,
)
from forge_jobs.model.processes import HeldClaim, Pod, PodGauges, PodLease
from forge_jobs.model.retention import KEPT, Kept
from forge_jobs.model.transitions import (
    OCCURRENCE,
    Demand,
    Finalization,
    Occurrence,
    Revival,
    Transition,
    occurrence_of,
)
from forge_jobs.storage.protocols import Storage

QUEUE = "default"
KIND = "tests.noop"
LEASE = timedelta(seconds=15)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
MICROSECOND = timedelta(microseconds=1)
BEGUN = datetime(2026, 6, 1, tzinfo=UTC)


def new_job(**overrides: Any) -> NewJob:
    """A request that is due at once."""
    fields: dict[str, Any] = {"id": new_job_id(), "queue": QUEUE, "kind": KIND, "payload": "{}"}
    return NewJob(**(fields | overrides))


def a_claimed_job(**overrides: Any) -> ClaimedJob:
    """Return a job of the default queue in the first attempt of five, as a claim brings it."""
    fields: dict[str, Any] = {
        "claim": Claim(QUEUE, new_job_id(), 1, new_host_id()),
        "kind": KIND,
        "payload": "{}",
        "attempt": 1,
        "max_attempts": 5,
        "crashes": 0,
        "snoozes": 0,
        "priority": 0,
        "timeout": None,
        "tags": (),
        "metadata": "{}",
        "trace": "",
        "run_at": BEGUN,
        "enqueued_at": BEGUN,
        "keep_result": True,
    }
    return ClaimedJob(**(fields | overrides))


def a_pod(**overrides: Any) -> Pod:
    """A pod that declares the default queue and knows the default kind."""
    fields: dict[str, Any] = {
        "host_id": new_host_id(),
        "label": "",
        "queues": (QUEUE,),
        "kinds": (KIND,),
        "version": "",
        "process_id": 4711,
    }
    return Pod(**(fields | overrides))


async def register(
    storage: Storage,
    *,
    queues: Sequence[str] = (QUEUE,),
    kinds: Sequence[str] = (KIND,),
    lease_for: timedelta = LEASE,
    host_id: HostId | None = None,
) -> PodLease:
    """Admit a pod and return the lease."""
    pod = a_pod(host_id=host_id or new_host_id(), queues=tuple(queues), kinds=tuple(kinds))
    return await storage.procs.register(pod, lease_for)


async def claim(
    storage: Storage,
    lease: PodLease,
    *,
    limit: int = 1,
    queue: str = QUEUE,
    kinds: Sequence[str] = (KIND,),
    ahead: bool = False,
) -> list[ClaimedJob]:
    """Claim up to ``limit`` jobs, each for a worker of its own unless they are held ahead."""
    worker_ids = [] if ahead else [new_worker_id() for _ in range(limit)]
    return await claim_for(storage, queue, worker_ids, limit, frozenset(kinds), lease)


async def claim_for(
    storage: Storage,
    queue: str,
    worker_ids: Sequence[str],
    limit: int,
    kinds: frozenset[str],
    lease: PodLease,
) -> list[ClaimedJob]:
    """Claim up to ``limit`` jobs, the first for these workers and the rest held ahead."""
    demand = Demand(worker_ids=tuple(worker_ids), limit=limit, kinds=kinds)
    return list((await storage.jobs.exchange(queue, (), demand, lease)).claimed)


async def claim_one(
    storage: Storage,
    lease: PodLease,
    *,
    queue: str = QUEUE,
    kinds: Sequence[str] = (KIND,),
    ahead: bool = False,
) -> ClaimedJob:
    """Claim the next job, which must be there."""
    claimed = await claim(storage, lease, queue=queue, kinds=kinds, ahead=ahead)
    assert len(claimed) == 1, f"expected one due job, claimed {claimed}"
    return claimed[0]


async def enqueue_one(storage: Storage, **overrides: Any) -> JobId:
    """Store one job that must not be a duplicate."""
    [outcome] = await storage.jobs.enqueue([new_job(**overrides)])
    assert not outcome.deduplicated
    return outcome.job_id


async def enqueue_patiently(storage: Storage, requests: Sequence[NewJob]) -> list[EnqueueOutcome]:
    """Repeated while the store says Locked, as a client does: another call may be slow."""
    while True:
        with suppress(Locked):
            return await storage.jobs.enqueue(requests)


async def get_job(storage: Storage, job_id: JobId) -> Job:
    """The stored job, which must be there."""
    found = await storage.jobs.get([job_id])
    assert job_id in found, f"job {job_id} is not stored"
    return found[job_id]


async def spoil(storage: Storage, job_id: JobId, payload: str) -> None:
    """Give a job another payload, as operators may."""
    job = await get_job(storage, job_id)
    before = content_of(job)
    after = structs.replace(before, payload=payload)
    await storage.jobs.edit(job_id, token=job.token, before=before, after=after)


async def finish(storage: Storage, claimed: ClaimedJob | Claim, transition: Transition) -> bool:
    """Finalize one claim."""
    the_claim = claimed.claim if isinstance(claimed, ClaimedJob) else claimed
    [applied] = await storage.jobs.finalize([Finalization(the_claim, transition)])
    assert applied is not None
    return applied


async def revive(
    storage: Storage,
    claimed: ClaimedJob | Claim,
    transition: Transition | None = None,
    stale_after: timedelta = LEASE,
) -> bool:
    """Revive one claim."""
    the_claim = claimed.claim if isinstance(claimed, ClaimedJob) else claimed
    revival = Revival(the_claim, transition or crashed())
    [applied] = await storage.jobs.revive([revival], stale_after)
    return applied


async def cleaned_up(storage: Storage, batch: int = 1_000, kept: Kept = KEPT) -> int:
    """Run a whole pass of retention, and return how many rows went."""
    cleaned = await storage.jobs.cleanup(batch, kept=kept)
    removed = cleaned.removed
    while cleaned.rest is not None:
        cleaned = await storage.jobs.cleanup(batch, cleaned.rest, kept=kept)
        removed += cleaned.removed
    return removed


async def run_one(
    storage: Storage, lease: PodLease, transition: Transition, *, queue: str = QUEUE
) -> JobId:
    """Claim the next job and finalize the claim with ``transition``."""
    claimed = await claim_one(storage, lease, queue=queue)
    assert await finish(storage, claimed, transition)
    return claimed.claim.job_id


async def counters(storage: Storage, queue: str = QUEUE) -> dict[str, int]:
    """All counters of a queue, summed over all minutes, those that are zero left out."""
    now = await storage.cron.now()
    buckets = await storage.jobs.metrics(queue, now - 3650 * DAY, now + 3650 * DAY)
    totals: dict[str, int] = {}
    for bucket in buckets:
        for name, count in bucket.counts.items():
            totals[str(name)] = totals.get(str(name), 0) + count
    return {name: count for name, count in totals.items() if count}


async def times_claimed(storage: Storage, queue: str = QUEUE) -> int:
    """How many claims there were of jobs of the queue."""
    return (await counters(storage, queue)).get("claimed", 0)


async def claims_kept(storage: Storage, queue: str = QUEUE) -> int:
    """How many claims there were that their pods did not give back before the start.

    Held ahead of a free worker, a claim is given back when jobs turn out slower than was thought.
    """
    counted = await counters(storage, queue)
    return counted.get("claimed", 0) - counted.get("released", 0)


def only(*job_ids: JobId) -> JobFilter:
    """A filter for exactly these jobs."""
    return JobFilter(ids=job_ids)


def held(claimed: ClaimedJob | Claim, worker_id: str = "") -> HeldClaim:
    """Return a claim as a pod reports it in a beat."""
    return HeldClaim(claimed.claim if isinstance(claimed, ClaimedJob) else claimed, worker_id)


def error(message: str = "boom", *, attempt: int = 1, **overrides: Any) -> ErrorRecord:
    """Return an error record as a runtime hands it over: without a time."""
    fields: dict[str, Any] = {"cause": Cause.FAILED, "type": "ValueError"}
    return ErrorRecord(attempt=attempt, message=message, **(fields | overrides))


def done(result: str | None = None, **overrides: Any) -> Transition:
    """The handler returned."""
    return _transition(JobStatus.DONE, Cause.SUCCEEDED, {"result": result} | overrides)


def failed(delay: timedelta = timedelta(0), **overrides: Any) -> Transition:
    """The handler raised and has attempts left."""
    fields: dict[str, Any] = {"error": error(), "delay": delay}
    return _transition(JobStatus.FAILED, Cause.FAILED, fields | overrides)


def dead(**overrides: Any) -> Transition:
    """The handler raised for the last time."""
    return _transition(JobStatus.DEAD, Cause.FAILED, {"error": error()} | overrides)


def snoozed(delay: timedelta = timedelta(0), **overrides: Any) -> Transition:
    """The handler waits for a budget."""
    fields: dict[str, Any] = {"delay": delay, "hand_back": True, "count_snooze": True}
    return _transition(JobStatus.PENDING, Cause.SNOOZED, fields | overrides)


def rate_limited(delay: timedelta = timedelta(0), **overrides: Any) -> Transition:
    """The handler waits for a token."""
    fields: dict[str, Any] = {"delay": delay, "hand_back": True, "rate_limit": "gh"}
    return _transition(JobStatus.PENDING, Cause.RATE_LIMITED, fields | overrides)


def again(
    claimed: ClaimedJob, payload: str, after: timedelta = timedelta(0), **overrides: Any
) -> Transition:
    """The handler said ``Again``."""
    metadata = json.loads(claimed.metadata)
    metadata[OCCURRENCE] = str(occurrence_of(metadata) + 1)
    occurrence = Occurrence(
        payload=payload,
        metadata=json.dumps(metadata),
        max_attempts=claimed.max_attempts,
        timeout=claimed.timeout,
        keep_result=claimed.keep_result,
        trace=claimed.trace,
    )
    fields: dict[str, Any] = {"delay": after, "again": occurrence}
    return _transition(JobStatus.PENDING, Cause.SUCCEEDED, fields | overrides)


def crashed(**overrides: Any) -> Transition:
    """The process died under the job."""
    fields: dict[str, Any] = {"count_crash": True, "error": error("lost", cause=Cause.CRASHED)}
    return _transition(JobStatus.PENDING, Cause.CRASHED, fields | overrides)


def _transition(status: JobStatus, cause: Cause, fields: dict[str, Any]) -> Transition:
    return Transition(**({"status": status, "cause": cause} | fields))


def deaf_gauges() -> PodGauges:
    """Return what a pod measures that hears no wake-ups and is well otherwise."""
    return PodGauges(
        cpu_percent=1.0,
        memory_bytes=1 << 20,
        disk_free_bytes=1 << 30,
        store_latency_ms=1.0,
        loop_lag_ms=0.0,
        running=0,
        listening=False,
    )
