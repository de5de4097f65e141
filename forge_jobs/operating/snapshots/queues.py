"""Queues, as a snapshot shows them."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import structs

from forge_jobs.model.events import EventKind, TimelineEvent, pod_note
from forge_jobs.model.processes import PodState
from forge_jobs.model.queues import QueueCounts, QueueState
from forge_jobs.operating.snapshots.fleet import is_live
from forge_jobs.operating.snapshots.jobs import JobsSeen
from forge_jobs.policy.cooldowns import next_cooldown
from forge_jobs.policy.judgement.problems.snapshot import QueueSeen

_ZERO = timedelta(0)


def queues_seen(
    now: datetime,
    states: Sequence[QueueState],
    counts: Mapping[str, QueueCounts],
    pods: Sequence[PodState],
    events: Sequence[TimelineEvent],
) -> tuple[QueueSeen, ...]:
    """Return the queues that answered.

    :param events: of the fleet, newest first
    """
    servers: dict[str, list[PodState]] = {}
    for pod in pods:
        if is_live(pod) and not pod.draining:
            for name in pod.pod.queues:
                servers.setdefault(name, []).append(pod)
    left = _left(pods, events)
    return tuple(
        _seen(now, state, counts[state.name], servers.get(state.name, []), left.get(state.name))
        for state in states
        if state.name in counts
    )


def with_jobs(queue: QueueSeen, jobs: JobsSeen) -> QueueSeen:
    """Return the queue with what is held there."""
    queue = structs.replace(queue, held=jobs.held.get(queue.name, ()))
    children = jobs.children.get(queue.name)
    if children is None:
        return queue
    return structs.replace(
        queue,
        children=children.jobs,
        children_since=children.since,
        holding_parent=children.parent,
    )


def _seen(
    now: datetime,
    state: QueueState,
    counts: QueueCounts,
    servers: Sequence[PodState],
    left: tuple[datetime, str] | None,
) -> QueueSeen:
    oldest = None if counts.oldest_due_for is None else now - counts.oldest_due_for
    granted = sum(pod.slots[state.name].grant for pod in servers if state.name in pod.slots)
    # Where no pod is known to have served the queue, its oldest due job has waited all along.
    unserved = None if servers else (left[0] if left else oldest)
    begun = min((pod.started_at for pod in servers), default=None)
    return QueueSeen(
        name=state.name,
        due=counts.due,
        oldest_due_at=oldest,
        pods=len(servers),
        max_workers=state.settings.max_workers,
        granted=granted,
        unserved_since=unserved,
        served_by=f"pods of version {left[1]}" if left and left[1] else "",
        ungranted_since=None if granted else begun,
        paused_since=(state.paused_since or oldest) if state.paused else None,
        cooling_since=_cooling_since(now, state),
        cooling_until=now + state.cooldown_remaining if state.cooldown_remaining else None,
    )


def _cooling_since(now: datetime, state: QueueState) -> datetime | None:
    """The begin of the cool-down that lasts, which follows from its length and the level.

    Where the upstream gave the length, the begin is not known, and now at the latest.
    """
    if state.cooldown_remaining <= _ZERO:
        return None
    # As long as the pause that raised the level to what the level is.
    level = state.cooldown_level - 1
    length = next_cooldown(state.settings.cooldown, level, _ZERO, None).length
    return min(now, now + state.cooldown_remaining - length)


def _left(
    pods: Sequence[PodState], events: Sequence[TimelineEvent]
) -> dict[str, tuple[datetime, str]]:
    """Queue -> when the last pod left that took work of the queue, and the pod's version."""
    found: dict[str, tuple[datetime, str]] = {}
    for at, version, queues in _leaves(pods, events):
        for name in queues:
            if name not in found or found[name][0] < at:
                found[name] = at, version
    return found


def _leaves(
    pods: Sequence[PodState], events: Sequence[TimelineEvent]
) -> Iterator[tuple[datetime, str, tuple[str, ...]]]:
    draining = {each.host_id: each.at for each in events if each.kind is EventKind.POD_DRAINING}
    for pod in pods:
        if not is_live(pod) or pod.draining:
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
