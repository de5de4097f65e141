"""Explanations of jobs: the one exact reason for every status and condition."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import ACTIVE, Cause, Hold, Job, JobStatus
from forge_jobs.model.processes import Allocation, Leadership, PodState, WorkerState
from forge_jobs.model.queues import LimitState, QueueState
from forge_jobs.model.strikes import Strike
from forge_jobs.policy import remedies
from forge_jobs.policy.cooldowns import cooldown_began
from forge_jobs.policy.explanations import (
    ZERO,
    Explanation,
    KeySeen,
    Reason,
    Situation,
    at,
    count,
    how_known,
)
from forge_jobs.policy.slots.permits import has_room, limited
from forge_jobs.policy.slots.reasons import in_progress, of_fleet
from forge_jobs.privacy.encryption import key_named_by


def explain(  # noqa: PLR0917 - the readings it weighs, one parameter each
    job: Job,
    queue: QueueState | None,
    allocation: Allocation | None,
    pods: Sequence[PodState],
    leader: Leadership | None,
    now: datetime,
    *,
    parents: Mapping[JobId, JobStatus] | None = None,
    workers: Sequence[WorkerState] = (),
    limits: Sequence[LimitState] = (),
    key: KeySeen | None = None,
    strikes: Sequence[Strike] = (),
) -> Explanation:
    """Explain why ``job`` does not run or how it runs, from readings of one moment.

    Of several reasons the first that must go away is given: the job's own (parents, expiry,
    unknown kind, due time) before those of the queue (paused, cooling down) before those of
    the fleet (no pod, no slots, slots busy).

    :param queue, allocation: of the job's queue, None when the store has none
    :param pods: all pods, also those whose lease ran out
    :param now: the store's time
    :param parents: statuses of the jobs in ``job.waits_for``, as far as they were looked up.
        Only they tell a parent still to end from one that failed and is held for an operator
    :param workers: of all pods. They tell who has the slots
    :param limits: of the queue, for a job that waits for one
    :param key: of that limit
    :param strikes: for a job that one of them holds
    """
    around = Situation(
        queue=queue,
        allocation=allocation,
        pods=tuple(pods),
        leader=leader,
        now=now,
        workers=tuple(workers),
        limits=tuple(limits),
        key=key or KeySeen(),
        strikes=tuple(strikes),
    )
    reason = _reason(job, around, parents or {})
    is_late = job.status in _WAITING and job.due_at <= now
    return msgspec.structs.replace(
        reason,
        text=_line(f"{job.kind!r} in queue {job.queue!r}: {reason.text}"),
        since=reason.since or (job.due_at if is_late else None),
    )


def _reason(job: Job, around: Situation, parents: Mapping[JobId, JobStatus]) -> Explanation:
    if job.status is JobStatus.IN_PROGRESS:
        return in_progress(job, around)
    if job.status in _ENDED:
        return _ended(job)
    if job.expires_at is not None and job.expires_at <= around.now:
        return _expired(job, job.expires_at, around)
    if job.status is JobStatus.BLOCKED:
        waits: Explanation | None = _blocked(job, parents, around)
    else:
        waits = _of_job(job, around) or _of_queue(job, around)
    return _with_expiry(job, waits or of_fleet(job, around))


_WAITING = {JobStatus.PENDING, JobStatus.FAILED}
_ENDED = {
    JobStatus.DONE: Reason.DONE,
    JobStatus.DEAD: Reason.DEAD,
    JobStatus.CANCELLED: Reason.CANCELLED,
}


def _expired(job: Job, expired_at: datetime, around: Situation) -> Explanation:
    text = f"expired at {at(expired_at)} before it ran; "
    if around.live:
        return Explanation(
            reason=Reason.EXPIRED, text=f"{text}about to be cancelled", since=expired_at
        )
    return Explanation(
        reason=Reason.EXPIRED,
        text=f"{text}no live pod is there to cancel it",
        since=expired_at,
        help=remedies.start_worker(job.queue),
    )


def _unreadable(job: Job) -> Explanation:
    text = "on hold: the release that was to run it could not read its record, and this one can"
    if job.unreadable:
        held = "on hold: " if job.hold is not None else ""
        text = f"{held}its record cannot be read: {job.unreadable}; mend it, or start a release "
        text += "that reads it, then requeue it"
    return Explanation(reason=Reason.UNREADABLE, text=text, help=remedies.requeue(job.id))


def _of_job(job: Job, around: Situation) -> Explanation | None:
    if job.unreadable or job.hold is Hold.UNREADABLE:
        return _unreadable(job)
    if job.hold is Hold.LIMIT:
        return _of_limit(job, around)
    if job.hold is Hold.STRUCK:
        return _struck(job, around)
    if job.hold is not None:
        return Explanation(
            reason=Reason.UNKNOWN_KIND,
            text=f"held: no live pod knows the kind {job.kind!r}{how_known(job.kind)}",
            help=remedies.start_worker(job.queue),
        )
    return None if job.due_at <= around.now else _not_due(job, around)


def _of_limit(job: Job, around: Situation) -> Explanation:
    """A job of a key with room waits for a claim: what keeps claims from the queue comes first."""
    if has_room(job, around):
        if not any(job.queue in pod.pod.queues for pod in around.live):
            return of_fleet(job, around)
        return _of_queue(job, around) or limited(job, around)
    return limited(job, around)


def _not_due(job: Job, around: Situation) -> Explanation:
    help = remedies.run_now(job.id)
    if job.status is JobStatus.FAILED:
        text = f"waits for attempt {_attempt(job, job.attempt + 1)} at {at(job.due_at)}"
        return Explanation(
            reason=Reason.WAITS_FOR_RETRY,
            text=f"{text}; attempt {job.attempt} {_last_error(job)}",
            since=job.errors[-1].at if job.errors else None,
            forecast=job.due_at,
            help=help,
        )
    if job.cause is Cause.STRUCK and job.struck_by is None:
        return _struck(job, around)
    if job.rate_limit is not None:
        return Explanation(
            reason=Reason.RATE_LIMITED,
            text=f"waits for the rate limit {job.rate_limit!r} until its turn at {at(job.due_at)}; "
            "does not start before, and then as soon as a slot is free",
            forecast=job.due_at,
        )
    if job.cause is Cause.KEY_MISSING:
        return Explanation(
            reason=Reason.KEY_MISSING,
            text=f"waits for a pod with the key {key_named_by(job.payload) or '(none)'} of its "
            "payload, and with those of its checkpoint and of its parents' results, if any: pod "
            f"{job.host_id} claimed the job and lacks a key; tried again at {at(job.due_at)}",
            since=job.claimed_at,
            forecast=job.due_at,
            help=f"give the workers of queue {job.queue} the key, then: {help}",
        )
    text = f"not due before {at(job.due_at)}"
    if job.snoozes and job.cause in {Cause.SNOOZED, Cause.THROTTLED}:
        text = f"{job.cause} for the {_ordinal(job.snoozes)} time; {text}"
    return Explanation(reason=Reason.NOT_DUE, text=text, forecast=job.due_at, help=help)


def _struck(job: Job, around: Situation) -> Explanation:
    known = next((each for each in around.strikes if each.name == job.struck_by), None)
    help = remedies.run_now(job.id)
    if job.hold is not Hold.STRUCK:
        text = f"waits until its pod knows the strikes, asked again at {at(job.due_at)}"
    elif known is None:
        text = f"was held by the strike {job.struck_by!r}, which is lifted; ready within a minute"
        help = ""
    else:
        why = f": {known.rule.reason}" if known.rule.reason else ""
        text = f"held by the strike {known.name!r} of {known.by}{why}; ready once that is lifted"
        help = remedies.lift_strike(known.name)
    since = job.claimed_at or job.enqueued_at
    return Explanation(reason=Reason.STRUCK, text=text, since=since, help=help)


def _with_expiry(job: Job, reason: Explanation) -> Explanation:
    if job.expires_at is None:
        return reason
    first = reason.forecast is None or job.expires_at < reason.forecast
    return msgspec.structs.replace(
        reason,
        text=f"{reason.text}; expires at {at(job.expires_at)}",
        forecast=job.expires_at if first else reason.forecast,
    )


def _blocked(job: Job, parents: Mapping[JobId, JobStatus], around: Situation) -> Explanation:
    # A parent that was requeued holds the job no more, although the edge may still say so.
    failed = [one for one in job.held_by if parents.get(one) not in _NOT_FAILED]
    waits_for = failed or list(job.waits_for)
    names = ", ".join(waits_for[:3])
    if len(waits_for) > 3:
        names += f" and {len(waits_for) - 3} more"
    if failed:
        return Explanation(
            reason=Reason.BLOCKED_BY_FAILED_PARENT,
            text=f"blocked: held by {names}, which ended without success; runs once they have "
            "succeeded after a requeue, or once it is released",
            help=remedies.release_held(job.id),
            blocked_by=tuple(failed),
        )
    if all(parents.get(one) is JobStatus.DONE for one in waits_for):
        return _about_to_be_freed(job, around)
    return Explanation(
        reason=Reason.BLOCKED_BY_PARENTS,
        text=f"blocked: waits for {count(len(waits_for), 'job')}: {names}",
        since=job.enqueued_at,
        help=remedies.explain_job(waits_for[0]),
        blocked_by=tuple(waits_for),
    )


def _about_to_be_freed(job: Job, around: Situation) -> Explanation:
    hands = "about to be freed" if around.live else "no live pod is there to free it"
    text = f"blocked: all that it waited for has ended; {hands}"
    help = "" if around.live else remedies.start_worker(job.queue)
    if job.held_by and around.live:
        # The end of a removed job stands, whatever another one does that has the same id.
        earlier = f"an earlier job of the id {job.held_by[0]}"
        text += f"; where not within a minute, {earlier} holds it until a release"
        help = remedies.release_held(job.id)
    return Explanation(
        reason=Reason.BLOCKED_BY_PARENTS, text=text, since=job.enqueued_at, help=help
    )


_NOT_FAILED = ACTIVE | {JobStatus.DONE}


def _of_queue(job: Job, around: Situation) -> Explanation | None:
    queue = around.queue
    if queue is None:
        return Explanation(
            reason=Reason.QUEUE_UNKNOWN,
            text="the store has no queue of this name",
            help=remedies.start_worker(job.queue),
        )
    if queue.paused:
        return Explanation(
            reason=Reason.PAUSED,
            text=f"the queue is paused by an operator{_since(queue.paused_since)}",
            since=queue.paused_since and max(queue.paused_since, job.due_at),
            help=remedies.resume_queue(job.queue),
        )
    if queue.cooldown_remaining > ZERO:
        until = around.now + queue.cooldown_remaining
        began = cooldown_began(queue, around.now)
        return Explanation(
            reason=Reason.COOLING_DOWN,
            text=f"the queue cools down until {at(until)} after "
            f"{count(queue.cooldown_level, 'throttle')} in a row",
            since=began and max(began, job.due_at),
            forecast=until,
            help=remedies.resume_queue(job.queue),
        )
    if queue.settings.max_workers == 0:
        return Explanation(
            reason=Reason.MAX_WORKERS_ZERO,
            text="the queue has max_workers 0",
            help=remedies.set_max_workers(job.queue, 1),
        )
    return None


def _ended(job: Job) -> Explanation:
    reason, help = _ENDED[job.status], remedies.requeue(job.id)
    if reason is Reason.DONE:
        help = ""
        text = f"done in attempt {_attempt(job, job.attempt)}"
        if job.errors and job.errors[-1].cause is Cause.SUCCEEDED:
            text += f"; its result is missing: {job.errors[-1].type}: {job.errors[-1].message}"
        elif job.errors and job.errors[-1].type == "Overran":
            text += f"; {job.errors[-1].message}"
    elif reason is Reason.DEAD:
        text = f"dead after attempt {_attempt(job, job.attempt)}: {_why_dead(job)}"
    else:
        text = f"cancelled: {_WHY_CANCELLED.get(job.cause, 'on request')}"
        if job.cause is Cause.STRUCK and job.errors:
            text = f"cancelled: {job.errors[-1].message}"
    return Explanation(reason=reason, text=text, since=job.finished_at, help=help)


_WHY_CANCELLED = {
    Cause.EXPIRED: "it expired before it ran",
    Cause.DROPPED: "its rate limit had no token for it, and its handler drops such jobs",
    Cause.STRUCK: "a strike of an operator meant it",
    Cause.PARENT_FAILED: "a job it waited for ended without success",
}


def _why_dead(job: Job) -> str:
    if job.cause is Cause.REJECTED:
        return f"its handler gave it up, {_last_error(job)}"
    used_up = job.max_attempts is not None and job.attempt >= job.max_attempts
    return _last_error(job) + (", its attempts are used up" if used_up else "")


def _last_error(job: Job) -> str:
    if not job.errors:
        return str(job.cause)
    error = job.errors[-1]
    return f"{error.cause} with {error.type}: {error.message}"


def _attempt(job: Job, number: int) -> str:
    return f"{number}" if job.max_attempts is None else f"{number} of {job.max_attempts}"


def _ordinal(number: int) -> str:
    if number % 100 in {11, 12, 13}:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _since(moment: datetime | None) -> str:
    return f" since {at(moment)}" if moment else ""


def _line(text: str) -> str:
    return " ".join(text.split())


__all__ = ["Explanation", "Reason", "Situation", "explain"]
