"""Why a job does not run and since when, and when one starts that waits for a slot."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct, structs

from forge_jobs.clients.explaining.keys import read_key, with_start
from forge_jobs.clients.explaining.lines import BLOCKED, read_front
from forge_jobs.clients.flows.wholes import key_holders, mended_by
from forge_jobs.errors import NotFound
from forge_jobs.model.events import TimelineEvent
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, Hold, Job, JobStatus
from forge_jobs.model.looks import FleetLook
from forge_jobs.model.metrics import Histogram
from forge_jobs.model.processes import Allocation, PodState, Slots, WorkerState
from forge_jobs.model.queues import QueueState
from forge_jobs.policy.admission import explain
from forge_jobs.policy.explanations import Explanation, Reason
from forge_jobs.policy.judgement.forecast import forecast
from forge_jobs.policy.judgement.load import Load
from forge_jobs.policy.judgement.since import BY_FLEET, BY_JOB, with_since
from forge_jobs.policy.percentiles import add
from forge_jobs.storage.protocols import Storage

MEASURED = timedelta(minutes=15)
"""How far back a load is measured."""

_REQUEUED = (Reason.DEAD, Reason.CANCELLED)
_RETRIES = (Cause.FAILED, Cause.TIMED_OUT, Cause.CRASHED, Cause.SNOOZED, Cause.THROTTLED)


class Seen(Struct, frozen=True, kw_only=True):
    """The readings behind explanations of any number of jobs, made once for all of them."""

    fleet: FleetLook
    workers: Sequence[WorkerState]


async def seen(storage: Storage) -> Seen:
    """Read what explanations rest on, in two calls."""
    return Seen(fleet=await storage.cron.look(), workers=await storage.procs.workers())


async def explained(
    storage: Storage, job: Job, around: Seen | None = None, *, is_front: bool = False
) -> Explanation:
    """Explain the state of a job that has been read.

    :param around: None reads anew
    :param is_front: another job waits for this one, so what is in front of this is not followed
    """
    around = around or await seen(storage)
    fleet = around.fleet
    queue = next((found for found in fleet.queues if found.name == job.queue), None)
    slots = _allocation(queue, fleet.pods) if queue else None
    parents = await storage.jobs.get(job.waits_for) if job.waits_for else {}
    limits = await storage.config.limits() if job.hold is Hold.LIMIT else []
    key = await read_key(storage, job, limits, fleet.now) if job.hold is Hold.LIMIT else None
    strikes = await storage.config.strikes() if job.struck_by else []
    told = explain(
        job,
        queue,
        slots,
        fleet.pods,
        fleet.leader,
        fleet.now,
        parents={parent.id: parent.status for parent in parents.values()},
        workers=around.workers,
        limits=limits,
        key=key,
        strikes=strikes,
    )
    events: Sequence[TimelineEvent] = ()
    if told.reason in BY_JOB:
        events = await storage.jobs.events(job_id=job.id)
    elif told.reason in BY_FLEET:
        events = fleet.events
    told = with_since(told, job, parents=parents, pods=fleet.pods, events=events, now=fleet.now)
    if told.reason is Reason.LIMITED and key is not None:
        by_name = {(each.queue, each.name): each for each in limits}
        limit = by_name.get((job.queue, job.limit_name))
        return with_start(told, key, limit, fleet.now)
    if told.reason is Reason.BLOCKED_BY_FAILED_PARENT:
        told = await _with_mending(storage, told, parents)
    if told.reason in BLOCKED and not is_front:
        return await _with_front(storage, job, told, parents, around)
    if told.reason in _REQUEUED and not is_front:
        return await _with_holder(storage, job, told)
    granted = sum(each.grant for each in slots.pods.values()) if slots else 0
    return await with_forecast(storage, job, told, slots=granted, fleet=fleet)


async def _with_mending(
    storage: Storage, told: Explanation, parents: Mapping[JobId, Job]
) -> Explanation:
    """Name the command that leaves nothing out. Of a parent that is gone a release is left.

    So it is where a parent cannot be requeued, because another job has the unique key by now.
    """
    if any(each not in parents for each in told.blocked_by):
        return told
    failed = [parents[JobId(each)] for each in told.blocked_by]
    if holders := await key_holders(storage.jobs, failed):
        return structs.replace(told, text=f"{told.text}; {_lost(holders)}")
    return structs.replace(told, help=mended_by(failed) or told.help)


async def _with_holder(storage: Storage, job: Job, told: Explanation) -> Explanation:
    """Name no requeue that is refused, because another job has the unique key by now."""
    if holders := await key_holders(storage.jobs, [job]):
        return structs.replace(told, text=f"{told.text}; {_lost(holders)}", help="")
    return told


def _lost(holders: Mapping[JobId, JobId]) -> str:
    return ", ".join(
        f"{each} cannot be requeued while {holder} has the unique key"
        for each, holder in holders.items()
    )


async def _with_front(
    storage: Storage,
    job: Job,
    told: Explanation,
    parents: Mapping[JobId, Job],
    around: Seen,
) -> Explanation:
    front = await read_front(storage, job, told, parents)
    if front is None:
        return told
    what = await explained(storage, front.job, around, is_front=True)
    return structs.replace(told, text=f"{told.text}; {front.text(what.text)}")


def _allocation(queue: QueueState, pods: Sequence[PodState]) -> Allocation:
    """Return the slots of a queue, as its pods have them."""
    serving = [pod for pod in pods if pod.lease_remaining and queue.name in pod.pod.queues]
    return Allocation(
        queue=queue.name,
        version=0,
        max_workers=queue.settings.max_workers,
        pods={pod.pod.host_id: pod.slots.get(queue.name, Slots(0, 0)) for pod in serving},
        draining=frozenset(pod.pod.host_id for pod in serving if pod.draining),
    )


async def measured_load(storage: Storage, queue: str, *, over: timedelta = MEASURED) -> Load:
    """Measure a queue: what fell due and how long runs took lately, what waits and runs now.

    A job counts as due when enqueued, and again with each retry. So jobs with a due time far ahead
    count too early.

    :raises NotFound: no such queue
    """
    states = {state.name: state for state in await storage.config.queues()}
    if queue not in states:
        raise NotFound(f"there is no queue {queue!r}; forge-jobs queues list names all")
    return await _load(storage, states[queue], await storage.cron.now(), over)


async def _load(storage: Storage, state: QueueState, now: datetime, over: timedelta) -> Load:
    queue = state.name
    counts = (await storage.jobs.counts([queue], ended_at_most=1))[queue]
    buckets = await storage.jobs.metrics(queue, now - over, now + timedelta(minutes=1))
    runs, arrived = Histogram({}), 0
    for bucket in buckets:
        runs = add(runs, bucket.processing)
        arrived += arrivals(bucket.counts)
    return Load(
        over=over,
        arrived=arrived,
        runs=runs,
        waiting=counts.due,
        running=counts.by_status.get(JobStatus.IN_PROGRESS, 0),
        max_workers=state.settings.max_workers,
    )


def arrivals(counts: Mapping[str, int]) -> int:
    """How many runs fell due by the counters of a queue: first runs and retries."""
    return sum(counts.get(name, 0) for name in (Cause.ENQUEUED, *_RETRIES))


async def with_forecast(
    storage: Storage, job: Job, told: Explanation, *, slots: int, fleet: FleetLook
) -> Explanation:
    """Add to the explanation of a job that waits for a slot when that job starts.

    Any other explanation stays as it is, and so does one where no run ended lately.

    :param slots: granted slots of the job's queue
    :param fleet: read just before
    """
    if told.reason is not Reason.SLOTS_BUSY:
        return told
    place = await storage.jobs.place(job.queue, job.id)
    if place is None:
        return told
    now = fleet.now
    state = next(state for state in fleet.queues if state.name == job.queue)
    load = await _load(storage, state, now, MEASURED)
    found = forecast(place, load, slots=slots, now=now)
    if found is None:
        return structs.replace(told, ahead=place.ahead, text=f"{told.text}; {place} due before")
    return structs.replace(
        told,
        ahead=place.ahead,
        text=f"{told.text}; {place} due before, {found.text(now)}",
        starts_after=found.earliest,
        starts_before=found.latest,
        rests_on=found.rests_on,
    )
