"""How a queue is served: slots, pods, and the state of the queue in words."""

from collections.abc import Iterable
from datetime import timedelta

from msgspec import Struct

from forge_jobs.model.processes import PodState
from forge_jobs.model.queues import QueueCounts, QueueState
from forge_jobs.operating.words import duration

NO_COUNTS = QueueCounts(by_status={}, due=0, held=0, running=0, oldest_due_for=None)

_ZERO = timedelta(0)


class Service(Struct, frozen=True, kw_only=True):
    """How a queue is served.

    :param granted: slots of the pods with a live lease
    :param pods: so many have slots
    :param standing: the state of the queue in words
    """

    granted: int
    pods: int
    unserved: bool
    standing: str


def service(state: QueueState, counts: QueueCounts, pods: Iterable[PodState]) -> Service:
    """Return how a queue is served by some pods."""
    grants = [
        pod.slots[state.name].grant
        for pod in pods
        if state.name in pod.slots and pod.lease_remaining > _ZERO
    ]
    return service_by(state, counts, grants)


def service_by(state: QueueState, counts: QueueCounts, grants: Iterable[int]) -> Service:
    """Return how a queue is served.

    :param grants: slots of each live pod
    """
    grants = [*grants]
    waits = counts.due or counts.by_status.get("pending")
    unserved = bool(waits and not grants)
    return Service(
        granted=sum(grants),
        pods=len(grants),
        unserved=unserved,
        standing=_standing(state, unserved=unserved),
    )


def _standing(state: QueueState, *, unserved: bool) -> str:
    if state.unreadable:
        return f"cannot be read: {state.unreadable}"
    if state.paused:
        return "paused"
    if state.cooldown_remaining > _ZERO:
        return f"cooling down for {duration(state.cooldown_remaining)}"
    return "unserved: no live pod serves it" if unserved else "open"
