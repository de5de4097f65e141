"""Since when the reason of an explanation holds, where events or parents say so."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import structs

from forge_jobs.model.events import EventKind, TimelineEvent, pod_note
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Job
from forge_jobs.model.processes import PodState
from forge_jobs.policy.explanations import Explanation, Reason
from forge_jobs.policy.timelines import spans_of, stage_at

BY_JOB = frozenset({Reason.CANCELLING, Reason.NOT_DUE, Reason.RATE_LIMITED})
"""Reasons whose begin the events of the job tell."""

BY_FLEET = frozenset({Reason.NO_POD, Reason.ONLY_DRAINING_PODS})
"""Reasons whose begin the events of pods tell."""

_ZERO = timedelta(0)


def with_since(
    told: Explanation,
    job: Job,
    *,
    parents: Mapping[JobId, Job],
    pods: Sequence[PodState],
    events: Sequence[TimelineEvent],
    now: datetime,
) -> Explanation:
    """Return the explanation with the begin of the reason, as far as that is known.

    :param parents: of the job, as far as they are still there
    :param pods: all pods
    :param now: the store's time
    :param events: newest first: of the job for ``BY_JOB``, of the fleet for ``BY_FLEET``
    """
    since = told.since
    if told.reason is Reason.BLOCKED_BY_FAILED_PARENT:
        ends = [_ended(parents.get(JobId(each)), job) for each in told.blocked_by]
        since = min(ends, default=None)
    elif told.reason is Reason.CANCELLING:
        asked = [each.at for each in events if each.kind is EventKind.CANCEL_REQUESTED]
        # Of several wishes the first one of this run. A run asked before begins cancelled.
        since = min((at for at in asked if since is None or at >= since), default=since)
    elif told.reason in BY_JOB:
        state = stage_at(spans_of(job, events), now)
        since = state.at if state else None
    elif told.reason in BY_FLEET and (left := left_by_queue(pods, events).get(job.queue)):
        since = max(left[0], job.due_at)
    return structs.replace(told, since=since)


def _ended(parent: Job | None, child: Job) -> datetime:
    """When a parent began to hold the child. A parent that is gone may have done so all along."""
    ended = parent.finished_at if parent else None
    return max(ended or child.enqueued_at, child.enqueued_at)


def left_by_queue(
    pods: Iterable[PodState], events: Sequence[TimelineEvent]
) -> dict[str, tuple[datetime, str]]:
    """Queue -> when the last pod left that took work of the queue, and the pod's version.

    :param events: of the fleet, newest first
    """
    found: dict[str, tuple[datetime, str]] = {}
    for at, version, queues in _leaves(pods, events):
        for name in queues:
            if name not in found or found[name][0] < at:
                found[name] = at, version
    return found


def _leaves(
    pods: Iterable[PodState], events: Sequence[TimelineEvent]
) -> Iterator[tuple[datetime, str, tuple[str, ...]]]:
    draining = {each.host_id: each.at for each in events if each.kind is EventKind.POD_DRAINING}
    for pod in pods:
        if pod.lease_remaining <= _ZERO or pod.draining:
            at = draining.get(pod.pod.host_id, pod.last_beat_at)
            yield at, pod.pod.version, pod.pod.queues
    started = {
        each.host_id: pod_note(each.detail) for each in events if each.kind is EventKind.POD_STARTED
    }
    for event in events:
        if event.kind is EventKind.POD_STOPPED:
            note = pod_note(event.detail)
            yield event.at, note.version, note.queues
        elif event.kind is EventKind.POD_LOST and event.detail in started:
            note = started[event.detail]
            yield event.at, note.version, note.queues
