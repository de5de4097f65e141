"""Groups: what a client stores for one, how the whole ends, and how far the members have come."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from forge_jobs.clients.bulk import BulkTotals, sum_of
from forge_jobs.clients.flows.plans import EnqueuedGroup, Group, GroupState, part_id
from forge_jobs.errors import Conflict, InvalidInput, NotFound
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.edges import EdgeState
from forge_jobs.model.filters import BulkOutcome, JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, JobStatus, NewJob, Unique
from tests.conformance.model.reference import operators
from tests.conformance.model.reference.children import tallies
from tests.conformance.model.reference.enqueue import enqueue
from tests.conformance.model.reference.state import ModelJob, World

KIND = "forge.group"
_CALLBACKS = {"on_settled": "continue", "on_success": "cancel", "on_failure": "continue"}
"""The policy of the edge of each callback, in the order of their ids."""
_FIRST_CALLBACK = 10_000
_OF_FAILED = (EdgeState.HELD, EdgeState.DEAD, EdgeState.CANCELLED)
_FAILED = (JobStatus.DEAD, JobStatus.CANCELLED)


class ReferenceFlows:
    """The calls of a client about groups."""

    def __init__(self, world: World) -> None:
        self._world = world

    def enqueue_group(self, group: Group) -> EnqueuedGroup:
        """Members first, then the group's own job, then the callbacks: all or none of a few."""
        whole = JobId(group.id or "")
        if not group.requests:
            raise InvalidInput("group", "has no members", "give some")
        members = [_new_job(each, part_id(whole, n)) for n, each in enumerate(group.requests)]
        callbacks = {
            name: _callback(group, name, part_id(whole, number), policy)
            for number, (name, policy) in enumerate(_CALLBACKS.items(), _FIRST_CALLBACK)
            if getattr(group, name) is not None
        }
        outcomes = enqueue(
            self._world, [*members, _gate(group, members, callbacks), *callbacks.values()]
        )
        return EnqueuedGroup(
            id=whole,
            members=tuple(outcomes[: len(members)]),
            callbacks=dict(zip(callbacks, outcomes[len(members) + 1 :], strict=True)),
        )

    def group(self, group_id: JobId) -> GroupState:
        """By the edges, which outlive the members."""
        self._whole(group_id)
        if group_id not in (found := tallies(self._world, [group_id])):
            raise NotFound(group_id)
        tally = found[group_id]
        return GroupState(
            id=group_id,
            waiting=tally.open + tally.held,
            done=tally.settled,
            dead=tally.dead,
            cancelled=tally.cancelled,
        )

    def cancel_group(self, group_id: JobId) -> BulkTotals:
        """Cancel all members."""
        return self._all(sorted(self._whole(group_id).edges), self._cancel)

    def resume_group(self, group_id: JobId) -> BulkTotals:
        """Requeue what failed, then what has to hear of the new ends."""
        jobs, gate = self._world.jobs, self._whole(group_id)
        if gate.status is JobStatus.DONE:
            raise Conflict(group_id)
        failed = [each for each in sorted(gate.edges) if self._has_failed(gate, each)]
        if any(each not in jobs for each in failed):
            raise NotFound("a member")
        behind = json.loads(gate.payload or "{}").get("on_success")
        whole = [group_id] if behind is None else [group_id, behind]
        totals = self._all(failed, self._requeue)
        if gate.status not in _FAILED:
            return totals
        return sum_of(totals, self._all(whole, self._requeue))

    def _whole(self, group_id: JobId) -> ModelJob:
        """Return the group's own job. Any other job is none."""
        gate = self._world.jobs.get(group_id)
        if gate is None or gate.request.kind != KIND:
            raise NotFound(group_id)
        return gate

    def _has_failed(self, gate: ModelJob, member_id: JobId) -> bool:
        member = self._world.jobs.get(member_id)
        if member is None:
            return gate.edges[member_id].state in _OF_FAILED
        return member.status in _FAILED

    def settle(
        self, group_id: JobId, on_success: JobId | None, on_failure: JobId | None
    ) -> dict[str, int] | None:
        """Cancel the callback of a failure, unless the group has failed. None: the group has."""
        state = self.group(group_id)
        if state.dead or state.cancelled:
            return None
        if on_failure is not None:
            self._all([on_failure], self._cancel)
        return {"done": state.done}

    # -- verbs

    def _cancel(self, which: JobFilter) -> BulkOutcome:
        return operators.visit(self._world, operators.cancel, which, None, 500)

    def _requeue(self, which: JobFilter) -> BulkOutcome:
        return operators.requeue_all(self._world, which, None, 500)

    @staticmethod
    def _all(ids: Sequence[JobId], verb: Callable[[JobFilter], BulkOutcome]) -> BulkTotals:
        if not ids:
            return BulkTotals(0, 0, {})
        outcome = verb(JobFilter(ids=tuple(ids)))
        refused = Counter(outcome.refused.values())
        return BulkTotals(len(outcome.changed), len(outcome.requested), dict(refused))


def _gate(group: Group, members: Sequence[NewJob], callbacks: dict[str, NewJob]) -> NewJob:
    """Return the group's own job, which notes how each member ends."""
    ids = {name: callbacks[name].id if name in callbacks else None for name in _DECIDED}
    return _printed(
        NewJob(
            id=JobId(group.id or ""),
            queue=group.queue or members[0].queue,
            kind=KIND,
            payload=msgspec.json.encode(ids).decode(),
            after=tuple(After(each.id, "note") for each in members),
            max_attempts=None,
            tags=tuple(group.tags),
        )
    )


_DECIDED = ("on_success", "on_failure")
"""The callbacks that the end of the group decides on."""


def _callback(group: Group, name: str, job_id: JobId, policy: str) -> NewJob:
    edge = After(JobId(group.id or ""), policy)  # type: ignore[arg-type]
    return _new_job(getattr(group, name), job_id, [edge])


def _new_job(request: EnqueueRequest, job_id: JobId, after: Iterable[After] = ()) -> NewJob:
    named = [each if isinstance(each, After) else After(JobId(each)) for each in request.after]
    return _printed(
        NewJob(
            id=JobId(request.id or job_id),
            queue=str(request.queue),
            kind=request.kind,
            payload=str(request.payload),
            priority=int(request.priority or 0),
            delay=request.delay,  # type: ignore[arg-type]
            max_attempts=5,
            unique=Unique(request.unique_key) if request.unique_key else None,
            after=(*named, *after),
        )
    )


def _printed(job: NewJob) -> NewJob:
    """Requests with ids of their own are known by all of their content."""
    return msgspec.structs.replace(job, fingerprint=repr(job))
