"""How the news of a parent's end reaches its children."""

from collections.abc import Sequence

from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.transitions import Delivery, Handover
from tests.conformance.model.reference.ends import end_waiting
from tests.conformance.model.reference.state import (
    EDGE_HELD,
    EDGE_SETTLED,
    EDGE_TOLD,
    World,
)


def handovers(world: World) -> list[Handover]:
    """Those that can still be told: a child that has ended or gone need not be."""
    return [each for each in world.handovers if _can_be_told(world, each)]


def _can_be_told(world: World, news: Handover) -> bool:
    child = world.jobs.get(news.child_id)
    edge = child.edges.get(news.parent_id) if child else None
    return edge is not None and edge.state == EDGE_TOLD


def deliver(world: World, deliveries: Sequence[Delivery]) -> int:
    return sum(_deliver(world, each) for each in deliveries)


def _deliver(world: World, delivery: Delivery) -> bool:
    news = delivery.handover
    known = [each for each in world.handovers if each.id == news.id]
    if not known:
        return False
    world.handovers.remove(known[0])
    if not _can_be_told(world, news):
        return False
    child = world.jobs[news.child_id]
    child.edges[news.parent_id].state = EDGE_HELD if delivery.action == "hold" else EDGE_SETTLED
    if delivery.action == "cancel":
        end_waiting(world, [child], Cause.PARENT_FAILED)
    elif all(edge.state == EDGE_SETTLED for edge in child.edges.values()):
        asked = child.request.run_at or child.request.delay
        child.status, child.cause = JobStatus.PENDING, Cause.PARENTS_SETTLED
        child.due_at = max(child.due_at, world.now) if asked else world.now
        world.count(child.queue, Cause.PARENTS_SETTLED)
    return True
