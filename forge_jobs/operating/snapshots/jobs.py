"""Runs and held jobs, as a snapshot shows them. What is not there costs no call."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct, structs

from forge_jobs.model.events import EventKind
from forge_jobs.model.filters import JobFilter, JobOrder, JobSummary
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import ACTIVE, Cause, Hold, Job, JobStatus
from forge_jobs.model.metrics import MINUTE
from forge_jobs.model.processes import PodState, WorkerState
from forge_jobs.model.queues import QueueCounts, RateLimitState
from forge_jobs.policy.explanations import name_of
from forge_jobs.policy.judgement.problems.snapshot import CrashesSeen, HeldKind, LimitSeen, RunSeen
from forge_jobs.storage.protocols import Storage

_HELD, _BLOCKED, _CRASHED = 1_000, 200, 100
"""Jobs of a sort that are looked at: the newest."""

_STARVED = 200
"""Jobs that wait for a rate limit: those whose turn comes first."""

_LONGEST = 50
"""Runs that are looked at: the longest."""

_CANCELLED = 3
"""Runs that ignore a cancel, of which the events are read: the longest."""

_AFTER_CRASHES = (JobStatus.PENDING, JobStatus.FAILED, JobStatus.IN_PROGRESS, JobStatus.DEAD)

_CRASHED_WITHIN = timedelta(minutes=10)


class HeldChildren(Struct, frozen=True, kw_only=True):
    """Blocked jobs of a queue that parents without success hold."""

    jobs: int
    since: datetime
    parent: str


class JobsSeen(Struct, frozen=True, kw_only=True):
    """The part of a snapshot about jobs.

    :param held: queue -> kinds that no live pod knows
    :param children: queue -> children of parents without success
    """

    held: Mapping[str, tuple[HeldKind, ...]]
    children: Mapping[str, HeldChildren]
    crashes: tuple[CrashesSeen, ...]
    runs: tuple[RunSeen, ...]
    limits: tuple[LimitSeen, ...]


async def jobs_seen(
    storage: Storage,
    now: datetime,
    counts: Mapping[str, QueueCounts],
    pods: Sequence[PodState],
    limits: Sequence[RateLimitState],
) -> JobsSeen:
    """Read what is odd about jobs: at most nine calls, and none of an empty store.

    :raises Unavailable: the store is silent
    """
    blocked = await _newest(
        storage,
        [name for name, each in counts.items() if each.by_status.get(JobStatus.BLOCKED)],
        (JobStatus.BLOCKED,),
        _BLOCKED,
    )
    crashed = await _newest(
        storage,
        [name for name, each in counts.items() if any(map(each.by_status.get, _AFTER_CRASHES))],
        _AFTER_CRASHES,
        _CRASHED,
        causes=(Cause.CRASHED,),
    )
    waiting = await _newest(
        storage,
        [name for name, each in counts.items() if each.held],
        (JobStatus.PENDING, JobStatus.FAILED),
        _HELD,
    )
    starved = await _newest(
        storage,
        [name for name, each in counts.items() if limits and each.by_status.get(JobStatus.PENDING)],
        (JobStatus.PENDING,),
        _STARVED,
        causes=(Cause.RATE_LIMITED,),
        order="due",
    )
    ids = [job.id for job in (*blocked, *crashed, *starved)]
    whole = await storage.jobs.get(ids) if ids else {}
    return JobsSeen(
        held=_held(waiting),
        children=await _children(storage, [whole[job.id] for job in blocked if job.id in whole]),
        crashes=_crashes(now, [whole[job.id] for job in crashed if job.id in whole]),
        runs=await _runs(storage, counts, pods),
        limits=_starved([whole[job.id] for job in starved if job.id in whole], limits),
    )


async def _newest(
    storage: Storage,
    queues: Sequence[str],
    statuses: tuple[JobStatus, ...],
    limit: int,
    *,
    causes: tuple[Cause, ...] = (),
    order: JobOrder = "id",
) -> Sequence[JobSummary]:
    if not queues:
        return ()
    which = JobFilter(queues=tuple(queues), statuses=statuses, causes=causes)
    return (await storage.jobs.list(which, order=order, limit=limit)).jobs


def _held(waiting: Iterable[JobSummary]) -> dict[str, tuple[HeldKind, ...]]:
    """Return held jobs by kind, since the first of a kind fell due."""
    due: defaultdict[tuple[str, str], list[datetime]] = defaultdict(list)
    for job in waiting:
        if job.hold is Hold.UNKNOWN_KIND:
            due[job.queue, job.kind].append(job.due_at)
    found: defaultdict[str, tuple[HeldKind, ...]] = defaultdict(tuple)
    for (queue, kind), times in sorted(due.items()):
        found[queue] += (HeldKind(kind=kind, jobs=len(times), since=min(times)),)
    return found


async def _children(storage: Storage, blocked: Sequence[Job]) -> dict[str, HeldChildren]:
    named = sorted({parent for child in blocked for parent in child.held_by})
    parents = await storage.jobs.get(named) if named else {}
    found: defaultdict[str, list[tuple[datetime, JobId]]] = defaultdict(list)
    for child in blocked:
        holding = [
            (_ended(parents.get(parent), child), parent)
            for parent in child.held_by
            if _still_holds(parents.get(parent))
        ]
        if holding:
            found[child.queue].append(min(holding))
    return {
        queue: HeldChildren(jobs=len(each), since=min(each)[0], parent=min(each)[1])
        for queue, each in found.items()
    }


def _still_holds(parent: Job | None) -> bool:
    # A parent that was requeued holds nothing more. A parent that is gone still does.
    return parent is None or parent.status not in ACTIVE | {JobStatus.DONE}


def _ended(parent: Job | None, child: Job) -> datetime:
    return (parent.finished_at if parent else None) or child.enqueued_at


def _crashes(now: datetime, crashed: Sequence[Job]) -> tuple[CrashesSeen, ...]:
    """Crashes of the last ten minutes, by kind, of jobs that have not succeeded since."""
    times: defaultdict[tuple[str, str], list[datetime]] = defaultdict(list)
    for job in crashed:
        times[job.queue, job.kind] += [
            error.at
            for error in job.errors
            if error.cause is Cause.CRASHED and error.at and error.at > now - _CRASHED_WITHIN
        ]
    return tuple(
        CrashesSeen(queue=queue, kind=kind, crashes=len(found), first_at=min(found))
        for (queue, kind), found in sorted(times.items())
        if found
    )


async def _runs(
    storage: Storage, counts: Mapping[str, QueueCounts], pods: Sequence[PodState]
) -> tuple[RunSeen, ...]:
    """The longest runs, and of those that were asked to stop the longest."""
    if not any(each.running for each in counts.values()):
        return ()
    workers = sorted(
        await storage.procs.workers(), key=lambda each: (each.started_at, each.job_id)
    )
    asked = [each for each in workers if each.cancel_requested][:_CANCELLED]
    names: dict[str, str] = {pod.pod.host_id: name_of(pod) for pod in pods}
    longest = [_run(each, names) for each in workers[:_LONGEST] if each not in asked]
    return (*longest, *[await _asked_to_stop(storage, each, names) for each in asked])


def _run(worker: WorkerState, names: Mapping[str, str]) -> RunSeen:
    return RunSeen(
        job_id=worker.job_id,
        queue=worker.queue,
        kind=worker.kind,
        pod=names.get(worker.host_id, worker.host_id),
        started_at=worker.started_at,
    )


def _starved(jobs: Sequence[Job], limits: Sequence[RateLimitState]) -> tuple[LimitSeen, ...]:
    """Return the limits for which jobs wait.

    A job waits since its last attempt, else since it was to run: its due time is that of the turn.
    """
    refill = {
        each.scope: each.limit.capacity / (each.limit.period / MINUTE) for each in limits
    }
    since: defaultdict[str, list[datetime]] = defaultdict(list)
    for job in jobs:
        if job.rate_limit in refill:
            tried = [error.at for error in job.errors if error.at]
            since[job.rate_limit].append(max(job.enqueued_at, *tried))
    return tuple(
        LimitSeen(
            scope=scope, waiting=len(each), oldest_since=min(each), refill_a_minute=refill[scope]
        )
        for scope, each in sorted(since.items())
    )


async def _asked_to_stop(
    storage: Storage, worker: WorkerState, names: Mapping[str, str]
) -> RunSeen:
    events = await storage.jobs.events(job_id=worker.job_id)
    asked = [each.at for each in events if each.kind is EventKind.CANCEL_REQUESTED]
    return structs.replace(
        _run(worker, names),
        # Of several wishes to cancel the first one of this run. A run asked before began cancelled.
        cancel_requested_at=min(
            (at for at in asked if at >= worker.started_at), default=worker.started_at
        ),
    )
