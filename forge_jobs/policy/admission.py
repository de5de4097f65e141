"""Why a job is where it is: one exact reason for every status and condition."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, Job, JobStatus
from forge_jobs.model.processes import Allocation, Leadership, PodState
from forge_jobs.model.queues import QueueState

_ZERO = timedelta(0)


class Reason(StrEnum):
    """The code of an explanation. Stable: scripts compare it."""

    BLOCKED_BY_PARENTS = "blocked_by_parents"
    BLOCKED_BY_FAILED_PARENT = "blocked_by_failed_parent"
    EXPIRED = "expired"
    """Its time ran out; the next clean-up pass cancels it."""
    UNKNOWN_KIND = "unknown_kind"
    NOT_DUE = "not_due"
    WAITS_FOR_RETRY = "waits_for_retry"
    QUEUE_UNKNOWN = "queue_unknown"
    PAUSED = "paused"
    COOLING_DOWN = "cooling_down"
    MAX_WORKERS_ZERO = "max_workers_zero"
    NO_POD = "no_pod"
    """No pod with a live lease declares the queue."""
    ONLY_DRAINING_PODS = "only_draining_pods"
    NO_LEADER = "no_leader"
    """Pods declare the queue, and nobody is there to grant them slots."""
    NO_SLOTS = "no_slots"
    """Pods declare the queue, and slots are not granted yet."""
    NO_POD_WITH_KIND = "no_pod_with_kind"
    """The pods that have slots do not know the kind."""
    SLOTS_BUSY = "slots_busy"
    READY = "ready"
    """Nothing holds it back: it is claimed in its turn, in moments."""
    CANCELLING = "cancelling"
    HELD_AHEAD = "held_ahead"
    RUNNING = "running"
    OWNER_SILENT = "owner_silent"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


class Explanation(Struct, frozen=True, kw_only=True):
    """Why a job is where it is.

    :param text: one line for people
    :param since: since when this is so, None when it is not recorded
    :param forecast: when it changes by itself, None when that is not known
    :param blocked_by: ids of the jobs it waits for
    """

    reason: Reason
    text: str
    since: datetime | None = None
    forecast: datetime | None = None
    blocked_by: tuple[str, ...] = ()


class Situation(Struct, frozen=True, kw_only=True):
    """What surrounds a job, read at one moment; parts that do not exist are None or empty."""

    queue: QueueState | None
    allocation: Allocation | None
    pods: tuple[PodState, ...]
    leader: Leadership | None
    now: datetime

    @property
    def live(self) -> tuple[PodState, ...]:
        """Pods whose lease still runs."""
        return tuple(pod for pod in self.pods if pod.lease_remaining > _ZERO)


def explain(  # noqa: PLR0917 - the readings it weighs, one parameter each
    job: Job,
    queue: QueueState | None,
    allocation: Allocation | None,
    pods: Sequence[PodState],
    leader: Leadership | None,
    now: datetime,
    *,
    parents: Mapping[JobId, JobStatus] | None = None,
) -> Explanation:
    """The one reason why ``job`` is where it is, from readings of one moment.

    Of several reasons the one that must go away first is given: what concerns the job itself
    (parents, expiry, unknown kind, due time) before its queue (paused, cooling down) before
    the fleet (no pod, no slots, slots busy).

    :param queue, allocation: of the job's queue, None when the store has none
    :param pods: all pods, also those whose lease ran out
    :param now: the store's time
    :param parents: statuses of the jobs in ``job.waits_for``, as far as they were looked up;
        only they tell a parent still to end from one that failed and is held for an operator
    """
    around = Situation(queue=queue, allocation=allocation, pods=tuple(pods), leader=leader, now=now)
    if job.status is JobStatus.IN_PROGRESS:
        return _in_progress(job, around)
    if job.status in _ENDED:
        return _ended(job)
    if job.expires_at is not None and job.expires_at <= around.now:
        return Explanation(
            reason=Reason.EXPIRED,
            text=f"expired at {_at(job.expires_at)} before it ran; about to be cancelled",
            since=job.expires_at,
        )
    if job.status is JobStatus.BLOCKED:
        waits: Explanation | None = _blocked(job, parents or {})
    else:
        waits = _of_job(job, around) or _of_queue(job, around)
    return _with_expiry(job, waits or _of_fleet(job, around))


_ENDED = {
    JobStatus.DONE: Reason.DONE,
    JobStatus.DEAD: Reason.DEAD,
    JobStatus.CANCELLED: Reason.CANCELLED,
}


def _of_job(job: Job, around: Situation) -> Explanation | None:
    if job.hold is not None:
        text = f"held: no live pod knows the kind {job.kind!r}"
        return Explanation(reason=Reason.UNKNOWN_KIND, text=text)
    if job.due_at <= around.now:
        return None
    if job.status is JobStatus.FAILED:
        text = f"waits for attempt {_attempt(job, job.attempt + 1)} at {_at(job.due_at)}"
        return Explanation(
            reason=Reason.WAITS_FOR_RETRY,
            text=f"{text}; attempt {job.attempt} {_last_error(job)}",
            since=job.errors[-1].at if job.errors else None,
            forecast=job.due_at,
        )
    text = f"not due before {_at(job.due_at)}"
    if job.snoozes and job.cause in {Cause.SNOOZED, Cause.THROTTLED}:
        text = f"{job.cause} for the {_ordinal(job.snoozes)} time; {text}"
    return Explanation(reason=Reason.NOT_DUE, text=text, forecast=job.due_at)


def _with_expiry(job: Job, reason: Explanation) -> Explanation:
    if job.expires_at is None:
        return reason
    first = reason.forecast is None or job.expires_at < reason.forecast
    return Explanation(
        reason=reason.reason,
        text=f"{reason.text}; expires at {_at(job.expires_at)}",
        since=reason.since,
        forecast=job.expires_at if first else reason.forecast,
        blocked_by=reason.blocked_by,
    )


def _blocked(job: Job, parents: Mapping[JobId, JobStatus]) -> Explanation:
    failed = [parent for parent in job.waits_for if parents.get(parent) in _WITHOUT_SUCCESS]
    waits_for = failed or list(job.waits_for)
    names = ", ".join(waits_for[:3])
    if len(waits_for) > 3:
        names += f" and {len(waits_for) - 3} more"
    if failed:
        return Explanation(
            reason=Reason.BLOCKED_BY_FAILED_PARENT,
            text=f"blocked: held for an operator after {names} ended without success",
            blocked_by=tuple(failed),
        )
    return Explanation(
        reason=Reason.BLOCKED_BY_PARENTS,
        text=f"blocked: waits for {_count(len(waits_for), 'job')}: {names or 'about to be freed'}",
        since=job.enqueued_at,
        blocked_by=tuple(waits_for),
    )


_WITHOUT_SUCCESS = {JobStatus.DEAD, JobStatus.CANCELLED}


def _of_queue(job: Job, around: Situation) -> Explanation | None:
    queue = around.queue
    if queue is None:
        text = f"the store has no queue {job.queue!r}"
        return Explanation(reason=Reason.QUEUE_UNKNOWN, text=text)
    if queue.paused:
        text = f"queue {job.queue!r} is paused by an operator"
        return Explanation(reason=Reason.PAUSED, text=text)
    if queue.cooldown_remaining > _ZERO:
        until = around.now + queue.cooldown_remaining
        return Explanation(
            reason=Reason.COOLING_DOWN,
            text=f"queue {job.queue!r} cools down until {_at(until)} after "
            f"{_count(queue.cooldown_level, 'throttle')} in a row",
            forecast=until,
        )
    if queue.settings.max_workers == 0:
        text = f"queue {job.queue!r} has max_workers 0"
        return Explanation(reason=Reason.MAX_WORKERS_ZERO, text=text)
    return None


def _of_fleet(job: Job, around: Situation) -> Explanation:
    queue = job.queue
    declaring = [pod for pod in around.live if queue in pod.pod.queues]
    if not declaring:
        return Explanation(reason=Reason.NO_POD, text=f"no live pod declares the queue {queue!r}")
    takers = [pod for pod in declaring if not pod.draining]
    if not takers:
        text = f"{_count(len(declaring), 'pod')} declaring the queue {queue!r}, all shutting down"
        return Explanation(reason=Reason.ONLY_DRAINING_PODS, text=text)
    with_slots = [pod for pod in takers if _grant(pod, queue, around.allocation) > 0]
    if not with_slots:
        return _without_slots(len(takers), queue, around.leader)
    able = [pod for pod in with_slots if job.kind in pod.pod.kinds]
    if not able:
        text = f"no pod with slots of queue {queue!r} knows the kind {job.kind!r}"
        return Explanation(reason=Reason.NO_POD_WITH_KIND, text=text, since=job.due_at)
    return _by_slots(job, around, able, where="" if able == with_slots else _KNOWING)


_KNOWING = " on pods that know the kind"


def _by_slots(job: Job, around: Situation, able: Sequence[PodState], *, where: str) -> Explanation:
    # What a pod has in progress includes claims held ahead, so it may exceed the slots.
    granted = sum(_grant(pod, job.queue, around.allocation) for pod in able)
    held = sum(pod.in_progress.get(job.queue, 0) for pod in able)
    slots = f"{_count(granted, 'slot')} of queue {job.queue!r}{where}"
    if all(
        pod.in_progress.get(job.queue, 0) >= _grant(pod, job.queue, around.allocation)
        for pod in able
    ):
        verb = "is" if granted == 1 else "are"
        text = f"no slot is free: {slots} {verb} busy, {held} in progress"
        return Explanation(reason=Reason.SLOTS_BUSY, text=text, since=job.due_at)
    text = f"due, in its turn: {held} in progress in {slots}"
    return Explanation(reason=Reason.READY, text=text, since=job.due_at)


def _without_slots(pods: int, queue: str, leader: Leadership | None) -> Explanation:
    text = f"{_count(pods, 'pod')} declaring the queue {queue!r}, none with a slot"
    if leader is None or leader.remaining <= _ZERO:
        return Explanation(
            reason=Reason.NO_LEADER, text=f"{text}: no coordinator holds the leader lease"
        )
    return Explanation(
        reason=Reason.NO_SLOTS,
        text=f"{text} yet: the coordinator grants them once others have given theirs back",
    )


def _in_progress(job: Job, around: Situation) -> Explanation:
    owner = next((pod for pod in around.pods if pod.pod.host_id == job.host_id), None)
    where = f"on pod {owner.pod.label or job.host_id}" if owner else f"on pod {job.host_id}"
    if owner is None or owner.lease_remaining <= _ZERO:
        return Explanation(
            reason=Reason.OWNER_SILENT,
            text=f"claimed {where}, which shows no sign of life; revived once the claim is stale",
            since=job.heartbeat_at,
        )
    if job.cancel_requested:
        text = f"asked to cancel {where}; its handler has not stopped yet"
        return Explanation(
            reason=Reason.CANCELLING, text=text, since=job.started_at or job.claimed_at
        )
    if job.started_at is None:
        text = f"claimed {where}, not started: waits for a worker there"
        return Explanation(reason=Reason.HELD_AHEAD, text=text, since=job.claimed_at)
    return Explanation(
        reason=Reason.RUNNING,
        text=f"attempt {_attempt(job, job.attempt)} runs {where}, worker {job.worker_id}, "
        f"since {_at(job.started_at)}",
        since=job.started_at,
        forecast=job.started_at + job.timeout if job.timeout else None,
    )


def _ended(job: Job) -> Explanation:
    reason = _ENDED[job.status]
    if reason is Reason.DONE:
        text = f"done in attempt {_attempt(job, job.attempt)}"
        if job.errors and job.errors[-1].cause is Cause.SUCCEEDED:
            text += f"; its result is missing: {job.errors[-1].type}: {job.errors[-1].message}"
    elif reason is Reason.DEAD:
        text = f"dead after attempt {_attempt(job, job.attempt)}: {_why_dead(job)}"
    else:
        text = f"cancelled: {_WHY_CANCELLED.get(job.cause, 'on request')}"
    return Explanation(reason=reason, text=_line(text), since=job.finished_at)


_WHY_CANCELLED = {
    Cause.EXPIRED: "it expired before it ran",
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
    return _line(f"{error.cause} with {error.type}: {error.message}")


def _grant(pod: PodState, queue: str, allocation: Allocation | None) -> int:
    slots = pod.slots.get(queue)
    if allocation is not None:
        slots = allocation.pods.get(pod.pod.host_id)
    return slots.grant if slots is not None else 0


def _attempt(job: Job, number: int) -> str:
    return f"{number}" if job.max_attempts is None else f"{number} of {job.max_attempts}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _ordinal(number: int) -> str:
    if number % 100 in {11, 12, 13}:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _at(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%d %H:%M:%S UTC")


def _line(text: str) -> str:
    return " ".join(text.split())
