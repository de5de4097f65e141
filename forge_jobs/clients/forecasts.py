"""Why a job does not run and since when, and when one starts that waits for a slot."""

from collections.abc import Mapping
from datetime import timedelta

from msgspec import structs

from forge_jobs.errors import NotFound
from forge_jobs.model.events import TimelineEvent
from forge_jobs.model.jobs import Cause, Job, JobStatus
from forge_jobs.model.metrics import Histogram
from forge_jobs.policy.admission import explain
from forge_jobs.policy.explanations import Explanation, Reason
from forge_jobs.policy.judgement.forecast import forecast
from forge_jobs.policy.judgement.load import Load
from forge_jobs.policy.judgement.since import BY_FLEET, BY_JOB, with_since
from forge_jobs.policy.percentiles import add
from forge_jobs.storage.protocols import Storage

MEASURED = timedelta(minutes=15)
"""How far back a load is measured."""

EVENTS_OF_FLEET = 1_000
"""Events of pods that tell when the last one left a queue: the newest."""

_RETRIES = (Cause.FAILED, Cause.TIMED_OUT, Cause.CRASHED, Cause.SNOOZED, Cause.THROTTLED)


async def explained(storage: Storage, job: Job) -> Explanation:
    """Explain the state of a job that has been read."""
    queues = await storage.config.queues()
    allocations = await storage.procs.allocations()
    slots = next((found for found in allocations if found.queue == job.queue), None)
    parents = await storage.jobs.get(job.waits_for) if job.waits_for else {}
    pods = await storage.procs.pods()
    leader = await storage.cron.leader()
    now = await storage.cron.now()
    told = explain(
        job,
        next((queue for queue in queues if queue.name == job.queue), None),
        slots,
        pods,
        leader,
        now,
        parents={parent.id: parent.status for parent in parents.values()},
        workers=await storage.procs.workers(),
    )
    events: list[TimelineEvent] = []
    if told.reason in BY_JOB:
        events = await storage.jobs.events(job_id=job.id)
    elif told.reason in BY_FLEET:
        events = await storage.jobs.events(queue="", limit=EVENTS_OF_FLEET)
    told = with_since(told, job, parents=parents, pods=pods, events=events, now=now)
    granted = sum(each.grant for each in slots.pods.values()) if slots else 0
    return await with_forecast(storage, job, told, slots=granted)


async def measured_load(storage: Storage, queue: str, *, over: timedelta = MEASURED) -> Load:
    """Measure a queue: what fell due and how long runs took lately, what waits and runs now.

    A job counts as due when enqueued, and again with each retry. So jobs with a due time far ahead
    count too early.

    :raises NotFound: no such queue
    """
    now = await storage.cron.now()
    states = {state.name: state for state in await storage.config.queues()}
    if queue not in states:
        raise NotFound(f"there is no queue {queue!r}; forge-jobs queues list names all")
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
        max_workers=states[queue].settings.max_workers,
    )


def arrivals(counts: Mapping[str, int]) -> int:
    """How many runs fell due by the counters of a queue: first runs and retries."""
    return sum(counts.get(name, 0) for name in (Cause.ENQUEUED, *_RETRIES))


async def with_forecast(
    storage: Storage, job: Job, told: Explanation, *, slots: int
) -> Explanation:
    """Add to the explanation of a job that waits for a slot when that job starts.

    Any other explanation stays as it is, and so does one where no run ended lately.

    :param slots: granted slots of the job's queue
    """
    if told.reason is not Reason.SLOTS_BUSY:
        return told
    place = await storage.jobs.place(job.queue, job.id)
    if place is None:
        return told
    load = await measured_load(storage, job.queue)
    now = await storage.cron.now()
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
