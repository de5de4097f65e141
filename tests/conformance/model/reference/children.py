"""Handovers: the end of a parent reaches the children. And who comes before and after a job."""

from collections import Counter
from collections.abc import Sequence

from forge_jobs.errors import Conflict, NotFound
from forge_jobs.model.edges import Kin, Relative, Tally
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, Cause, JobStatus
from forge_jobs.model.transitions import Delivery, Handover
from tests.conformance.model.reference.ends import add_handover, end_waiting, settle_if_last
from tests.conformance.model.reference.lines import inherit, named_rule
from tests.conformance.model.reference.state import TOLD, Edge, World


def handovers(world: World) -> list[Handover]:
    """Return the handovers that can still be delivered."""
    return [each for each in world.handovers if _can_be_told(world, each)]


def _can_be_told(world: World, news: Handover) -> bool:
    child = world.jobs.get(news.child_id)
    edge = child.edges.get(news.parent_id) if child else None
    return edge is not None and edge.has_news


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
    inherit(world, news, holds=delivery.edge.waits)
    child.edges[news.parent_id].hear(delivery.edge)
    if child.status is not JobStatus.BLOCKED:
        return False
    if delivery.action == "cancel":
        end_waiting(world, [child], Cause.PARENT_FAILED)
    else:
        settle_if_last(world, child)
    return True


def await_also(world: World, job_id: JobId, after: Sequence[After]) -> None:
    for each in (job_id, *(edge.job_id for edge in after)):
        if each not in world.jobs:
            raise NotFound(f"there is no job {each}")
    child = world.jobs[job_id]
    if child.status is not JobStatus.BLOCKED:
        raise Conflict(f"job {job_id} waits for no other job")
    for edge in after:
        if edge.job_id not in child.edges:
            child.edges[edge.job_id] = Edge(named_rule(world, job_id, edge))
            parent = world.jobs[edge.job_id]
            if parent.is_finished:
                add_handover(world, child, parent.id, parent.status)
                child.edges[parent.id].link = TOLD


def kin(world: World, ids: Sequence[JobId], limit: int) -> dict[JobId, Kin]:
    return {job_id: _kin(world, job_id, limit) for job_id in ids if job_id in world.jobs}


def _kin(world: World, job_id: JobId, limit: int) -> Kin:
    before = world.jobs[job_id].edges
    behind = {job.id: job.edges[job_id] for job in world.jobs.values() if job_id in job.edges}
    parents, children = (
        [_relative(world, each, edge) for each, edge in sorted(edges.items())]
        for edges in (before, behind)
    )
    return Kin(
        parents=tuple(parents[:limit]),
        children=tuple(children[:limit]),
        more_parents=len(parents) > limit,
        more_children=len(children) > limit,
    )


def tallies(world: World, ids: Sequence[JobId]) -> dict[JobId, Tally]:
    found = {job_id: world.jobs[job_id].edges for job_id in ids if job_id in world.jobs}
    return {
        job_id: Tally(**Counter(edge.state.value for edge in edges.values()))
        for job_id, edges in found.items()
        if edges
    }


def _relative(world: World, job_id: JobId, edge: Edge) -> Relative:
    job = world.jobs.get(job_id)
    return Relative(
        id=job_id,
        queue=job.queue if job else "",
        kind=job.request.kind if job else "",
        status=job.status if job else None,
        on_failure=edge.on_failure,
        edge=edge.state,
    )
