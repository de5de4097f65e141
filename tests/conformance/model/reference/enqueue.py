"""How jobs come in."""

from collections.abc import Sequence

from forge_jobs.clock import to_us
from forge_jobs.errors import Conflict, NotFound
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, EnqueueOutcome, JobStatus, NewJob
from tests.conformance.model.reference.ends import add_handover
from tests.conformance.model.reference.state import TOLD, ZERO, Edge, ModelJob, World


def enqueue(world: World, requests: Sequence[NewJob]) -> list[EnqueueOutcome]:
    """All or nothing: everything that can be refused is looked at before anything is stored."""
    call = _Call(world)
    outcomes = [call.admit(request) for request in requests]
    parents = {id_: call.parents(request) for id_, request in call.accepted.items()}
    for request, outcome in zip(requests, outcomes, strict=True):
        if outcome.deduplicated:
            world.count(request.queue, "deduplicated")
    for request in call.accepted.values():
        _store(world, request, parents[request.id])
    return outcomes


class _Call:
    """Requests that one call has accepted so far."""

    def __init__(self, world: World) -> None:
        self.accepted: dict[JobId, NewJob] = {}
        self._world = world
        self._stands_for: dict[JobId, JobId] = {}

    def admit(self, request: NewJob) -> EnqueueOutcome:
        if self._is_repeat(request):
            return EnqueueOutcome(request.id)
        holder = self._holder(request)
        if holder is not None:
            assert request.unique is not None
            if request.unique.mode == "error":
                raise Conflict(f"the key is held by {holder}")
            # A request with the dropped request as a parent means the job that holds the key.
            self._stands_for[request.id] = holder
            return EnqueueOutcome(holder, deduplicated=True)
        self.accepted[request.id] = request
        return EnqueueOutcome(request.id)

    def _is_repeat(self, request: NewJob) -> bool:
        earlier, payload = self.accepted.get(request.id), request.payload
        if earlier is None:
            stored = self._world.jobs.get(request.id)
            if stored is None:
                return False
            earlier = stored.request
            # What is not kept cannot be compared.
            payload = stored.payload or request.payload
        if earlier.fingerprint and request.fingerprint:
            same = earlier.fingerprint == request.fingerprint
        else:
            stored_content = (earlier.kind, earlier.queue, payload)
            same = stored_content == (request.kind, request.queue, request.payload)
        if not same:
            raise Conflict(f"{request.id} is stored with another content")
        return True

    def _holder(self, request: NewJob) -> JobId | None:
        if request.unique is None:
            return None
        for earlier in self.accepted.values():
            if earlier.queue == request.queue and earlier.unique == request.unique:
                return earlier.id
        stored = self._world.holder(request.queue, request.unique.key)
        return stored.id if stored else None

    def parents(self, request: NewJob) -> dict[JobId, str]:
        """Return each parent -> the consequence of a failure."""
        found: dict[JobId, str] = {}
        order = list(self.accepted)
        for after in request.after:
            parent = self._stands_for.get(after.job_id, after.job_id)
            if parent in self.accepted:
                if order.index(parent) >= order.index(request.id):
                    raise NotFound(f"{parent} comes later in the same call")
            elif parent not in self._world.jobs:
                raise NotFound(f"there is no {parent}")
            found[parent] = after.on_failure
        return found


def _store(world: World, request: NewJob, parents: dict[JobId, str]) -> None:
    world.declare(request.queue)
    world.accepted += 1
    world.count(request.queue, Cause.ENQUEUED)
    job = world.jobs[request.id] = ModelJob(
        request=request,
        payload=request.payload,
        status=JobStatus.BLOCKED if parents else JobStatus.PENDING,
        due_at=request.run_at or world.now + (request.delay or ZERO),
        enqueued_at=world.now,
        token=to_us(world.now),
        expires_at=request.expires_at,
    )
    for parent_id, on_failure in parents.items():
        job.edges[parent_id] = Edge(on_failure)
        parent = world.jobs[parent_id]
        if parent.is_finished:
            job.edges[parent_id].link = TOLD
            add_handover(world, job, parent_id, parent.status)
