"""Runs and held jobs, as a snapshot shows them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from msgspec import Struct, structs

from forge_jobs.clients.flows.wholes import key_holders, mended_by
from forge_jobs.model.events import EventKind
from forge_jobs.model.filters import JobSummary
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import ACTIVE, Cause, Hold, Job, JobStatus
from forge_jobs.model.looks import (
    AFTER_CRASHES,
    CRASHED_WITHIN,
    MOST_FULL_KEYS,
    FleetLook,
    JobsAsked,
    JobsLook,
    LimitLoad,
    StruckLine,
)
from forge_jobs.model.metrics import MINUTE
from forge_jobs.model.processes import WorkerState
from forge_jobs.model.queues import MOST_KEY_JOBS, QueueCounts, RateLimitState
from forge_jobs.model.strikes import mark_of
from forge_jobs.operating.together import all_of
from forge_jobs.policy import remedies
from forge_jobs.policy.explanations import name_of
from forge_jobs.policy.judgement.long_runs import long_from
from forge_jobs.policy.judgement.problems.snapshot import (
    CrashesSeen,
    FullKeySeen,
    HeldKeySeen,
    HeldKind,
    LimitSeen,
    RunSeen,
    StruckSeen,
)
from forge_jobs.storage.protocols import Storage


class HeldChildren(Struct, frozen=True, kw_only=True):
    """Blocked jobs of a queue that parents without success hold.

    :param mended_by: the command by which the parent begins anew. "" for none
    :param key_holder: the job that has the unique key of the parent by now, so that no requeue is
        possible, and ``mended_by`` is a release. "" for none
    """

    jobs: int
    since: datetime
    parent: str
    mended_by: str
    key_holder: str = ""


class JobsSeen(Struct, frozen=True, kw_only=True):
    """The part of a snapshot about jobs.

    :param held: queue -> kinds that no live pod knows
    :param children: queue -> children of parents without success
    :param loads: of limits by key
    """

    held: Mapping[str, tuple[HeldKind, ...]]
    children: Mapping[str, HeldChildren]
    crashes: tuple[CrashesSeen, ...]
    runs: tuple[RunSeen, ...]
    limits: tuple[LimitSeen, ...]
    struck: tuple[StruckSeen, ...] = ()
    loads: tuple[LimitLoad, ...] = ()
    keys: tuple[FullKeySeen, ...] = ()


async def jobs_seen(
    storage: Storage,
    counts: Mapping[str, QueueCounts],
    fleet: FleetLook,
) -> JobsSeen:
    """Read what is odd about jobs, in one call, and one more where a strike holds jobs, or where
    jobs wait for a parent with a unique key. Limits by key are read where there are any.

    :raises Unavailable: the store is silent
    """

    def where(*statuses: JobStatus) -> tuple[str, ...]:
        return tuple(
            name for name, each in counts.items() if any(map(each.by_status.get, statuses))
        )

    look = await storage.jobs.look(
        JobsAsked(
            blocked=where(JobStatus.BLOCKED),
            crashed=where(*AFTER_CRASHES),
            held=tuple(name for name, each in counts.items() if each.held),
            starved=where(JobStatus.PENDING) if fleet.limits else (),
            limited=tuple(name for name in fleet.limited if name in counts),
            struck=where(JobStatus.PENDING) if fleet.may_strike else (),
            runs=any(each.running for each in counts.values()),
        )
    )
    names: dict[str, str] = {pod.pod.host_id: name_of(pod) for pod in fleet.pods}
    return JobsSeen(
        held=_held(look.held),
        children=await _children(storage, look.blocked, look.parents),
        crashes=_crashes(fleet.now, look.crashed),
        runs=_runs(look, names),
        limits=_starved(fleet.now, look.starved, fleet.limits),
        loads=look.limits,
        keys=tuple(_keys(look.limits, fleet.now)),
        struck=await _struck(storage, look.struck) if look.struck else (),
    )


async def _struck(storage: Storage, lines: Sequence[StruckLine]) -> tuple[StruckSeen, ...]:
    """Return the jobs that strikes in force hold. Those of lifted ones are about to be ready."""
    known = {mark_of(strike): strike for strike in await storage.config.strikes()}
    found: list[StruckSeen] = []
    for line in lines:
        strike = known.get(line.mark)
        if strike is not None:
            since = max(line.oldest_due_at, strike.at or line.oldest_due_at)
            found.append(
                StruckSeen(
                    strike=strike.name,
                    queue=line.queue,
                    jobs=line.jobs,
                    since=since,
                    by=strike.by,
                    reason=strike.rule.reason,
                )
            )
    return tuple(found)


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


async def _children(
    storage: Storage, blocked: Sequence[Job], parents: Mapping[JobId, Job]
) -> dict[str, HeldChildren]:
    found: defaultdict[str, list[tuple[datetime, JobId, JobId]]] = defaultdict(list)
    for child in blocked:
        holding = [
            (_ended(parents.get(parent), child), parent, child.id)
            for parent in child.held_by
            if _still_holds(parents.get(parent))
        ]
        if holding:
            found[child.queue].append(min(holding))
    firsts = {queue: min(each) for queue, each in found.items()}
    # A look for each, so only of those that wait longest.
    longest = [parents[each[1]] for each in sorted(firsts.values()) if each[1] in parents]
    holders = await key_holders(storage.jobs, longest)
    seen: dict[str, HeldChildren] = {}
    for queue, (since, first, waiting) in firsts.items():
        failed = [parents[first]] if first in parents else []
        holder = holders.get(first, "")
        seen[queue] = HeldChildren(
            jobs=len(found[queue]),
            since=since,
            parent=first,
            mended_by=remedies.release_held(waiting) if holder else mended_by(failed),
            key_holder=holder,
        )
    return seen


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
            if error.cause is Cause.CRASHED and error.at and error.at > now - CRASHED_WITHIN
        ]
    return tuple(
        CrashesSeen(queue=queue, kind=kind, crashes=len(found), first_at=min(found))
        for (queue, kind), found in sorted(times.items())
        if found
    )


def _runs(look: JobsLook, names: Mapping[str, str]) -> tuple[RunSeen, ...]:
    """The longest runs, and of those that were asked to stop the longest."""
    asked = {each.job_id for each in look.cancelled}
    runs = [_run(each, names) for each in look.runs if each.job_id not in asked]
    return (*runs, *[_asked_to_stop(each, look, names) for each in look.cancelled])


def _run(worker: WorkerState, names: Mapping[str, str]) -> RunSeen:
    return RunSeen(
        job_id=worker.job_id,
        queue=worker.queue,
        kind=worker.kind,
        pod=names.get(worker.host_id, worker.host_id),
        started_at=worker.started_at,
    )


def _starved(
    now: datetime, jobs: Sequence[Job], limits: Sequence[RateLimitState]
) -> tuple[LimitSeen, ...]:
    """Return the limits for which jobs wait.

    A job waits since its enqueue or its last failure. The due time is that of the turn, so a job
    that was enqueued for later does not tell when it first asked. No job counts as waiting for
    longer than the limit needs for all that wait.
    """
    refill = {each.scope: each.limit.capacity / (each.limit.period / MINUTE) for each in limits}
    since: defaultdict[str, list[datetime]] = defaultdict(list)
    for job in jobs:
        if job.rate_limit in refill:
            failed = [error.at for error in job.errors if error.at]
            since[job.rate_limit].append(max([job.enqueued_at, *failed]))
    return tuple(
        LimitSeen(
            scope=scope,
            waiting=len(each),
            oldest_since=max(min(each), now - len(each) / refill[scope] * MINUTE),
            refill_a_minute=refill[scope],
        )
        for scope, each in sorted(since.items())
    )


def _keys(loads: Sequence[LimitLoad], now: datetime) -> Iterator[FullKeySeen]:
    """Return the full keys at which jobs are due.

    A key whose jobs come and go has a new begin with each claim, however long the line is.
    """
    for load in loads:
        for key in load.full_keys:
            if key.due_at <= now:
                yield FullKeySeen(
                    queue=load.queue,
                    limit=load.name,
                    key=key.key,
                    running=key.running,
                    waiting=key.waiting,
                    since=max(key.due_at, key.claimed_at),
                    kinds=key.kinds,
                )


async def held_keys(
    storage: Storage, now: datetime, limited: Collection[str], runs: Sequence[RunSeen]
) -> tuple[HeldKeySeen, ...]:
    """Return the keys of limits at which jobs wait while long runs hold permits.

    No call where no run of a queue with limits is long. Else one call for these runs, and one for
    each of at most five keys.

    :param runs: with what is usual for their kinds
    """
    long = {
        JobId(run.job_id): run
        for run in runs
        if run.queue in limited
        and run.usual is not None
        and now - run.started_at >= long_from(run.usual)
    }
    if not long:
        return ()
    of_keys: defaultdict[tuple[str, str, str], list[RunSeen]] = defaultdict(list)
    for job in (await storage.jobs.get([*long])).values():
        if job.limit_name:
            of_keys[job.queue, job.limit_name, job.limit_key].append(long[job.id])
    oldest = sorted(of_keys, key=lambda of: (min(run.started_at for run in of_keys[of]), of))
    asked = oldest[:MOST_FULL_KEYS]
    holders = await all_of([storage.config.limit_holders(*of, limit=MOST_KEY_JOBS) for of in asked])
    found: list[HeldKeySeen] = []
    for (queue, limit, key), each in zip(asked, holders, strict=True):
        holding = tuple(run for run in of_keys[queue, limit, key] if run.job_id in each.running)
        if holding and each.waiting:
            found.append(
                HeldKeySeen(
                    queue=queue,
                    limit=limit,
                    key=key,
                    running=len(each.running),
                    waiting=len(each.waiting),
                    long=holding,
                )
            )
    return tuple(found)


def _asked_to_stop(worker: WorkerState, look: JobsLook, names: Mapping[str, str]) -> RunSeen:
    events = look.events.get(worker.job_id, ())
    asked = [each.at for each in events if each.kind is EventKind.CANCEL_REQUESTED]
    return structs.replace(
        _run(worker, names),
        # Of several wishes to cancel the first one of this run. A run asked before began cancelled.
        cancel_requested_at=min(
            (at for at in asked if at >= worker.started_at), default=worker.started_at
        ),
    )
