"""Verbs of operators, on one job or all that match, and the effects of time."""

from collections.abc import Callable, Collection
from datetime import datetime, timedelta

from forge_jobs.model.edges import EdgeState, edge_of_requeued
from forge_jobs.model.events import EventKind
from forge_jobs.model.filters import BulkOutcome, JobFilter, JobSummary, Page, Refusal
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, Hold, JobStatus
from forge_jobs.model.queues import LinePlace, QueueCounts, Retention
from forge_jobs.model.retention import HISTORY_KEPT, Kept
from tests.conformance.model.reference import failures, lines
from tests.conformance.model.reference.ends import end_waiting, settle_if_last, tell_children
from tests.conformance.model.reference.state import (
    CUT,
    LEFT,
    LIVE,
    MINUTE,
    TOLD,
    Edge,
    ModelJob,
    World,
)

Verb = Callable[[World, ModelJob], "Refusal | bool"]
"""True: changed. False: the owner was asked."""


def matching(world: World, which: JobFilter) -> list[ModelJob]:
    """In id order."""
    found = (job for job in world.jobs.values() if _matches(job, which))
    return sorted(found, key=lambda job: job.id)


def _matches(job: ModelJob, which: JobFilter) -> bool:
    request = job.request
    checks = (
        which.ids is None or job.id in which.ids,
        not which.queues or job.queue in which.queues,
        not which.kinds or request.kind in which.kinds,
        not which.statuses or job.status in which.statuses,
        not which.causes or job.cause in which.causes,
        which.tag is None or which.tag in request.tags,
        which.unique_key is None or which.unique_key == job.key,
        which.schedule is None or which.schedule == request.schedule,
        which.enqueued_before is None or job.enqueued_at < which.enqueued_before,
        which.enqueued_after is None or job.enqueued_at >= which.enqueued_after,
    )
    return all(checks)


def visit(
    world: World, verb: Verb, which: JobFilter, cursor: str | None, limit: int
) -> BulkOutcome:
    """Ids that are asked for are visited also when they do not exist."""
    found = {job.id: job for job in matching(world, which)}
    wanted = sorted(set(found) if which.ids is None else set(which.ids))
    ids = [job_id for job_id in wanted if cursor is None or job_id > cursor]
    changed: list[JobId] = []
    requested: list[JobId] = []
    refused: dict[JobId, Refusal] = {}
    for job_id in ids[:limit]:
        if job_id not in found:
            if job_id not in world.jobs:
                refused[job_id] = Refusal.NOT_FOUND
            continue
        answer = verb(world, found[job_id])
        if isinstance(answer, Refusal):
            refused[job_id] = answer
        else:
            (changed if answer else requested).append(job_id)
    more = ids[limit - 1] if len(ids) > limit else None
    return BulkOutcome(tuple(changed), tuple(requested), refused, more)


def cancel(world: World, job: ModelJob) -> Refusal | bool:
    if job.is_finished:
        return Refusal.FINISHED
    if job.status is JobStatus.IN_PROGRESS:
        job.cancel_requested = True
        world.note(EventKind.CANCEL_REQUESTED, job)
        return False
    end_waiting(world, [job], Cause.CANCELLED)
    return True


def delete(world: World, job: ModelJob) -> Refusal | bool:
    if job.status is JobStatus.IN_PROGRESS:
        return Refusal.RUNNING
    remove(world, job)
    return True


def remove(world: World, job: ModelJob) -> None:
    """Remove a job. Children that still wait learn how the job ended, or that no end will come."""
    status = job.status if job.is_finished else JobStatus.CANCELLED
    lines.leave(world, job)
    tell_children(world, job.id, status, removed=True)
    world.remove(job)


def requeue(world: World, job: ModelJob) -> Refusal | bool:
    refusals = {
        JobStatus.DONE: Refusal.FINISHED,
        JobStatus.IN_PROGRESS: Refusal.RUNNING,
        JobStatus.PENDING: Refusal.WAITING,
        JobStatus.BLOCKED: Refusal.WAITING,
    }
    if job.status in refusals:
        return refusals[job.status]
    if not job.payload:
        return Refusal.FINISHED
    if world.holder(job.queue, job.key) is not None and not job.is_active:
        return Refusal.KEY_TAKEN
    if any(_again(world, parent, edge) is None for parent, edge in job.edges.items()):
        return Refusal.PARENT_FAILED
    world.places[job.id] = lines.find_place(world, job)
    job.status, job.cause, job.due_at = JobStatus.PENDING, Cause.REQUEUED, world.now
    job.attempt = job.crashes = job.snoozes = 0
    job.snoozed_since = None
    job.cancel_requested, job.finished_at, job.hold = False, None, None
    job.may_be_held = False
    job.result = job.result_expires_at = None
    if world.is_expired(job):
        job.expires_at = None
    world.count(job.queue, Cause.REQUEUED)
    world.note(EventKind.REQUEUED, job)
    return True


def _again(world: World, parent_id: JobId, edge: Edge) -> EdgeState | None:
    """Return the state of an edge when the child is requeued."""
    parent = world.jobs.get(parent_id)
    if parent is None and edge.link == LEFT:
        return edge.state
    return edge_of_requeued(edge.on_failure, edge.state, parent.status if parent else None)


def restorer(world: World) -> Verb:
    """The verb ``restore``, by what children know before the call."""
    told = {
        parent
        for child in world.jobs.values()
        for parent, edge in child.edges.items()
        if _knows(child, edge)
    }

    def restore(world: World, job: ModelJob) -> Refusal | bool:
        refused = _restore_refused(world, job)
        if refused is None and job.id in told:
            refused = Refusal.CHILDREN_KNOW
        if refused is not None:
            return refused
        world.places[job.id] = lines.find_place(world, job)
        job.status, job.cause = JobStatus.PENDING, Cause.RESTORED
        job.cancel_requested, job.finished_at, job.hold = False, None, None
        job.may_be_held = False
        job.result = job.result_expires_at = None
        world.count(job.queue, Cause.RESTORED)
        world.note(EventKind.RESTORED, job)
        return True

    return restore


def _restore_refused(world: World, job: ModelJob) -> Refusal | None:
    refusals = {
        JobStatus.DONE: Refusal.FINISHED,
        JobStatus.DEAD: Refusal.FINISHED,
        JobStatus.IN_PROGRESS: Refusal.RUNNING,
    }
    if job.status is not JobStatus.CANCELLED:
        return refusals.get(job.status, Refusal.WAITING)
    if not job.payload or job.cause is not Cause.CANCELLED:
        return Refusal.FINISHED
    if world.is_expired(job):
        return Refusal.EXPIRED
    if world.holder(job.queue, job.key) is not None:
        return Refusal.KEY_TAKEN
    if any(_again(world, parent, edge) is None for parent, edge in job.edges.items()):
        return Refusal.PARENT_FAILED
    return None


def _knows(child: ModelJob, edge: Edge) -> bool:
    was_cancelled = child.status is JobStatus.CANCELLED
    if not edge.state.waits:
        return not (was_cancelled and child.cause is Cause.CANCELLED)
    given_up = was_cancelled and child.cause is Cause.PARENT_FAILED
    return edge.state is EdgeState.HELD and given_up


def requeue_all(
    world: World, which: JobFilter, cursor: str | None, limit: int, verb: Verb = requeue
) -> BulkOutcome:
    """Edges are looked at when all jobs of the call are: some may be parents of others."""
    outcome = visit(world, verb, which, cursor, limit)
    for parent_id in outcome.changed:
        for child in world.jobs.values():
            if parent_id in child.edges and child.edges[parent_id].link == TOLD:
                _forget_news(world, child.id, parent_id)
                child.edges[parent_id].link = LIVE
    for job_id in outcome.changed:
        _relink(world, world.jobs[job_id])
    for job_id in outcome.changed:
        if place := world.places.pop(job_id):
            lines.take_place(world, world.jobs[job_id], place)
    return outcome


def _relink(world: World, child: ModelJob) -> None:
    for parent_id, edge in child.edges.items():
        edge.state = _again(world, parent_id, edge) or edge.state
        if parent_id in world.jobs:
            _forget_news(world, child.id, parent_id)
            edge.link = LIVE if edge.state.hears else CUT
        elif edge.link != LEFT:
            edge.link = CUT
    if any(edge.state.waits for edge in child.edges.values()):
        child.status = JobStatus.BLOCKED


def _forget_news(world: World, child_id: JobId, parent_id: JobId) -> None:
    world.handovers = [
        each for each in world.handovers if (each.child_id, each.parent_id) != (child_id, parent_id)
    ]


def release_held(world: World, job: ModelJob) -> Refusal | bool:
    if job.is_finished:
        return Refusal.FINISHED
    if job.status is JobStatus.IN_PROGRESS:
        return Refusal.RUNNING
    held = job.view().held_by
    for parent_id in held:
        job.edges[parent_id].state, job.edges[parent_id].link = EdgeState.SETTLED, CUT
    if not held:
        return Refusal.WAITING
    settle_if_last(world, job)
    world.note(EventKind.RELEASED_HELD, job)
    return True


def run_now(world: World, job: ModelJob) -> Refusal | bool:
    if job.status is JobStatus.BLOCKED:
        return Refusal.WAITING
    if job.status is JobStatus.IN_PROGRESS:
        return Refusal.RUNNING
    if job.is_finished:
        return Refusal.FINISHED
    if job.due_at > world.now:
        job.due_at = world.now
        job.hold = None if job.hold is Hold.STRUCK else job.hold
    return True


def release_struck(world: World, in_force: Collection[str]) -> int:
    held = [job for job in world.jobs.values() if job.hold is Hold.STRUCK]
    freed = [job for job in held if job.rate_limit not in in_force]
    for job in freed:
        job.hold = None
    return len(freed)


VERBS: dict[str, Verb] = {
    "cancel": cancel,
    "delete": delete,
    "requeue": requeue,
    "run_now": run_now,
    "release_held": release_held,
}


def list_jobs(world: World, which: JobFilter, cursor: str | None, limit: int) -> Page:
    found = [j for j in reversed(matching(world, which)) if cursor is None or j.id < cursor]
    more = found[limit - 1].id if len(found) > limit else None
    return Page(tuple(_summary(job) for job in found[:limit]), more)


def _summary(job: ModelJob) -> JobSummary:
    shown = job.view()
    newest = shown.errors[-1] if shown.errors else None
    return JobSummary(
        last_error=f"{newest.type}: {newest.message}" if newest else "",
        **{
            name: getattr(shown, name)
            for name in JobSummary.__struct_fields__
            if name != "last_error"
        },
    )


def place(world: World, queue: str, job_id: JobId) -> LinePlace | None:
    job = world.jobs.get(job_id)
    waits = job is not None and job.status in {JobStatus.PENDING, JobStatus.FAILED}
    if job is None or job.request.queue != queue or not waits or job.hold is not None:
        return None
    mine = _claimed_by(job)
    return LinePlace(ahead=sum(_claimed_by(each) < mine for each in world.waiting(queue)))


def _claimed_by(job: ModelJob) -> tuple[int, datetime, str]:
    return job.request.priority, job.due_at, job.id


def counts(world: World, name: str) -> QueueCounts:
    mine = world.of_queue(name)
    due = world.due(name)
    return QueueCounts(
        by_status={each.value: sum(job.status is each for job in mine) for each in JobStatus},
        due=len(due),
        held=sum(job.hold is Hold.UNKNOWN_KIND for job in mine),
        running=sum(
            job.status is JobStatus.IN_PROGRESS and job.started_at is not None for job in mine
        ),
        oldest_due_for=world.now - min(job.due_at for job in due) if due else None,
    )


def expire(world: World) -> int:
    waiting = {JobStatus.BLOCKED, JobStatus.PENDING, JobStatus.FAILED}
    expired = [j for j in world.jobs.values() if j.status in waiting and world.is_expired(j)]
    end_waiting(world, expired, Cause.EXPIRED)
    return len(expired)


def cleanup(world: World, limit: int, kept: Kept) -> None:
    """Of the jobs that are no longer kept at most ``limit`` go, queue by queue."""
    for job_id in overdue(world)[:limit]:
        remove(world, world.jobs[job_id])
    for job in world.jobs.values():
        if job.result_expires_at is not None and job.result_expires_at <= world.now:
            job.result = job.result_expires_at = None
    world.events = [event for event in world.events if event.at > world.now - kept.events]
    before = world.now - kept.hours
    for counted in (world.counts, world.latencies):
        for key in [key for key in counted if key[1] <= before]:
            del counted[key]
    minutes = world.now - kept.minutes_or(HISTORY_KEPT)
    world.flows = [each for each in world.flows if each.minute > minutes]
    world.failures = failures.kept_from(world.failures, world.now - kept.errors)
    world.gauges = {key: each for key, each in world.gauges.items() if key[0] > before}


def overdue(world: World) -> list[JobId]:
    """Return the jobs that are no longer kept, in the order in which they go."""
    return [
        job_id
        for queue in sorted(world.queues.values(), key=lambda each: each.name)
        for status in (JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED)
        for _, job_id in sorted(_overdue(world, queue.name, status, queue.settings.retention))
    ]


def _overdue(
    world: World, queue: str, status: JobStatus, retention: Retention
) -> list[tuple[datetime, JobId]]:
    age: timedelta = getattr(retention, status.value)
    most: int | None = getattr(retention, f"max_{status.value}")
    ended = [
        (job.finished_at, job.id)
        for job in world.of_queue(queue)
        if job.status is status and job.finished_at is not None
    ]
    ended.sort(reverse=True)

    def kept_for(place: int) -> timedelta:
        # A row stays for a minute, so that a repeat of the end is recognised.
        return MINUTE if most is not None and place >= most else max(age, MINUTE)

    return [
        (finished_at, job_id)
        for place, (finished_at, job_id) in enumerate(ended)
        if finished_at + kept_for(place) <= world.now
    ]
