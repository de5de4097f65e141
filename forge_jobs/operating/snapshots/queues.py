"""Queues, as a snapshot shows them."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import structs

from forge_jobs.model.events import TimelineEvent
from forge_jobs.model.processes import PodState
from forge_jobs.model.queues import QueueCounts, QueueState
from forge_jobs.operating.snapshots.fleet import is_live
from forge_jobs.operating.snapshots.jobs import JobsSeen
from forge_jobs.policy.cooldowns import cooldown_began
from forge_jobs.policy.judgement.problems.snapshot import QueueSeen
from forge_jobs.policy.judgement.since import left_by_queue

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
    left = left_by_queue(pods, events)
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
        mended_by=children.mended_by,
        key_holder=children.key_holder,
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
        cooling_since=cooldown_began(state, now),
        cooling_until=now + state.cooldown_remaining if state.cooldown_remaining else None,
    )
