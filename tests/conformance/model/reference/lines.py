"""Sequences: which job of a key comes after which, also when one is removed or comes back."""

from collections.abc import Callable, Collection, Iterable

from forge_jobs.model.edges import OF_SEQUENCES, EdgeState, named_in_line
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, JobStatus, NewJob
from forge_jobs.model.transitions import Handover
from tests.conformance.model.reference.ends import add_handover
from tests.conformance.model.reference.state import (
    CUT,
    LIVE,
    TOLD,
    Edge,
    Member,
    ModelJob,
    Place,
    World,
)


def join(world: World, request: NewJob, named: Iterable[JobId]) -> dict[JobId, str]:
    """Make a new job the last of its sequence, and return the jobs to wait for by that.

    :param named: the parents of the request, of which those of the sequence are among them
    """
    if request.sequence is None:
        return {}
    line = (request.queue, request.sequence.key)
    last = world.jobs.get(world.last.get(line, JobId("")))
    world.members[request.id] = Member(line, request.sequence.on_failure)
    world.last[line] = request.id
    before = {each for each in named if each in world.members and world.members[each].line == line}
    if last is not None and last.status is not JobStatus.DONE:
        before.add(last.id)
    return dict.fromkeys(before, request.sequence.on_failure)


def named_rule(world: World, child: JobId, edge: After) -> str:
    """Return the rule of an edge to a parent that a request names later."""
    members = [world.members.get(each) for each in (child, edge.job_id)]
    lines = [each.line for each in members if each is not None]
    is_in_line = len(lines) == 2 and lines[0] == lines[1]
    return named_in_line(edge.on_failure) if is_in_line else edge.on_failure


def leave(world: World, job: ModelJob) -> None:
    """Take a job that is being removed out of its sequence. Those behind keep their places."""
    member = world.members.pop(job.id, None)
    if member is None:
        return
    before = [each for each in _waited_for(job) if each in world.jobs]
    for child, edge in _behind(world, job.id):
        if edge.on_failure in OF_SEQUENCES:
            _add_before(world, child, before)
    if world.last.get(member.line) == job.id:
        del world.last[member.line]
        if before:
            # Of those behind all that have yet to end: one that has ended may have left its place.
            active = _first_active(world, before, lambda one: _waited_for(world.jobs[one]))
            newest = _not_ahead(world, active)
            behind = [
                each
                for each in before
                if each in newest or any(_comes_after(world, each, one) for one in newest)
            ]
            world.last[member.line] = max(_not_ahead(world, behind or before))


def inherit(world: World, news: Handover, *, holds: bool) -> None:
    """Let a child wait for what the parent waited for, when that one ended without success.

    :param holds: the child waits for the parent as before. What holds the parent is left there
    """
    parent = world.jobs.get(news.parent_id)
    edge = world.jobs[news.child_id].edges[news.parent_id]
    # A child that went on by a note of an earlier end may be in front of the parent by now.
    if parent is not None and edge.state.waits and edge.on_failure in OF_SEQUENCES:
        before = [
            each
            for each in _waited_for(parent)
            if each != news.child_id and not (holds and parent.edges[each].state is EdgeState.HELD)
        ]
        _add_before(world, world.jobs[news.child_id], before)


def _add_before(world: World, child: ModelJob, parents: Iterable[JobId]) -> None:
    on_failure = world.members[child.id].on_failure
    for parent_id in sorted(set(parents)):
        parent, edge = world.jobs.get(parent_id), child.edges.get(parent_id)
        status = JobStatus.CANCELLED if parent is None else parent.status
        is_over = parent is None or status is JobStatus.DONE
        if edge is not None and (edge.state.waits or is_over):
            continue
        # A settled one opens again: the child had left its place behind the parent.
        if edge is not None and edge.link == TOLD:
            edge.state = EdgeState.OPEN
            continue
        child.edges[parent_id] = Edge(edge.on_failure if edge else on_failure)
        if parent is None or parent.is_finished:
            child.edges[parent_id].link = TOLD
            add_handover(world, child, parent_id, status)


def find_place(world: World, job: ModelJob) -> Place | None:
    """Return the place of a job that has ended and comes back. None for a job of no sequence."""
    member = world.members.get(job.id)
    if member is None or not job.is_finished:
        return None
    last = world.last.setdefault(member.line, job.id)

    def children(one: JobId) -> list[JobId]:
        return [each.id for each, _ in _behind(world, one)]

    def parents(one: JobId) -> list[JobId]:
        return _waited_for(world.jobs[one])

    nexts = _first_active(world, children(job.id), children, member.line)
    next_one = next(
        (each for each in nexts if not any(_comes_after(world, each, one) for one in nexts)), None
    )
    stays = last == job.id or next_one is not None
    # The next one may wait for jobs that have passed this job when that had ended.
    after = _first_active(world, parents(next_one or job.id) if stays else [last], parents)
    if not stays:
        world.last[member.line] = job.id
    near = {each.id for each, edge in _behind(world, job.id) if edge.on_failure in OF_SEQUENCES}
    return Place(after - {job.id}, is_new=not stays, behind=nexts - near)


def take_place(world: World, job: ModelJob, place: Place) -> None:
    """Let a job wait at its place. None behind is held any more."""
    for _, edge in _behind(world, job.id):
        if edge.state is EdgeState.HELD and edge.on_failure in OF_SEQUENCES:
            edge.state = EdgeState.OPEN
    # Who waits in between may be released, or go on without the job.
    for child in place.behind:
        edge = world.jobs[child].edges.setdefault(job.id, Edge(world.members[child].on_failure))
        edge.state, edge.link = EdgeState.OPEN, LIVE
    if place.is_new:
        for parent in _waited_for(job):
            job.edges[parent].state, job.edges[parent].link = EdgeState.SETTLED, CUT
    for parent in place.after:
        edge = job.edges.setdefault(parent, Edge(world.members[job.id].on_failure))
        edge.state, edge.link = EdgeState.OPEN, LIVE
    waits = any(edge.state.waits for edge in job.edges.values())
    job.status = JobStatus.BLOCKED if waits else JobStatus.PENDING


def _waited_for(job: ModelJob) -> list[JobId]:
    """Return the jobs of the sequence that a job waits for, or waited for at the end."""
    return [
        parent
        for parent, edge in job.edges.items()
        if edge.state.waits and edge.on_failure in OF_SEQUENCES
    ]


def _behind(world: World, job_id: JobId) -> list[tuple[ModelJob, Edge]]:
    """Return the jobs of sequences that wait for a job."""
    return [
        (each, each.edges[job_id])
        for each in world.jobs.values()
        if each.id in world.members and job_id in each.edges and each.edges[job_id].state.waits
    ]


def _comes_after(world: World, job_id: JobId, other: JobId) -> bool:
    """Return whether a job waits for the other, also by way of further jobs."""
    ahead, seen = [job_id], set[JobId]()
    while ahead:
        one = ahead.pop()
        if one not in seen and one in world.jobs:
            seen.add(one)
            ahead += _waited_for(world.jobs[one])
            if other in _waited_for(world.jobs[one]):
                return True
    return False


def _not_ahead(world: World, ids: Collection[JobId]) -> Collection[JobId]:
    """Return the jobs that no other of them waits for."""
    left = [each for each in ids if not any(_comes_after(world, one, each) for one in ids)]
    return left or ids


def _first_active(
    world: World,
    starts: Iterable[JobId],
    ways: Callable[[JobId], Iterable[JobId]],
    line: tuple[str, str] | None = None,
) -> set[JobId]:
    """Return the first jobs from there on that have yet to end.

    :param line: of this sequence, by way of jobs of others too
    """
    found: set[JobId] = set()
    seen: set[JobId] = set()
    ahead = list(starts)
    while ahead:
        job_id = ahead.pop()
        if job_id in seen or job_id not in world.jobs:
            continue
        seen.add(job_id)
        is_other = line is not None and world.members[job_id].line != line
        if is_other or world.jobs[job_id].is_finished:
            ahead += ways(job_id)
        else:
            found.add(job_id)
    return found
