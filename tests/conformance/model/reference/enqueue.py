"""How jobs come in."""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from datetime import datetime

from msgspec import structs

from forge_jobs.clock import to_us
from forge_jobs.errors import Conflict, NotFound
from forge_jobs.model.edges import named_in_line
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, Cause, EnqueueOutcome, Hold, JobStatus, NewJob, Unique
from forge_jobs.model.strikes import Struck
from forge_jobs.model.transitions import struck_record
from forge_jobs.model.unique.keys import REPLACEMENT_KEPT, length
from tests.conformance.model.reference.ends import add_handover, end_waiting
from tests.conformance.model.reference.lines import join
from tests.conformance.model.reference.state import REPLACED, TOLD, ZERO, Edge, ModelJob, World

_CHANGED = (
    "jobs",
    "queues",
    "counts",
    "handovers",
    "windows",
    "replacements",
    "forgotten",
    "members",
    "last",
)


def enqueue(world: World, requests: Sequence[NewJob]) -> list[EnqueueOutcome]:
    """All or nothing, in order."""
    before = {name: copy(getattr(world, name)) for name in _CHANGED}
    call = _Call(world)
    try:
        outcomes = [call.admit(request) for request in requests]
        call.check_parents()
        call.end_struck()
    except (Conflict, NotFound):
        for name, value in before.items():
            setattr(world, name, value)
        raise
    world.accepted += len(world.jobs) - len(before["jobs"])
    return outcomes


class _Call:
    """The requests of one call so far."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._stands_for: dict[JobId, JobId] = {}
        self._missing: list[JobId] = []
        self._written: set[JobId] = set()
        self._struck: dict[JobId, Struck] = {}

    def check_parents(self) -> None:
        """Refuse the call when a parent is missing. A conflict of any request comes first."""
        if self._missing:
            raise NotFound(
                f"there is no {self._missing[0]}, or the parent comes later in the same call"
            )

    def end_struck(self) -> None:
        """Hold or cancel new jobs that a strike means, but for those with content of another."""
        world, ended = self._world, []
        for job_id, struck in self._struck.items():
            job = world.jobs[job_id]
            if job.request.struck is None or (job.edges and not struck.message):
                continue
            job.rate_limit, job.cause = struck.mark, Cause.STRUCK
            job.hold = None if job.edges else Hold.STRUCK
            if struck.message:
                job.errors = (structs.replace(struck_record(struck.message), at=world.now),)
                ended.append(job)
            else:
                world.count(job.queue, Cause.STRUCK)
        end_waiting(world, ended, Cause.STRUCK)

    def admit(self, request: NewJob) -> EnqueueOutcome:
        world, unique = self._world, request.unique
        if self._is_repeat(request):
            follows = unique is not None and world.jobs[request.id].waits_as_follow_up
            return EnqueueOutcome(request.id, follow_up=follows)
        if unique is None:
            return self._store(request)
        taken = world.replacements.get(request.id)
        replaces = unique.mode in ("replace", "debounce", "keep-last")
        if replaces and taken is not None and taken[1] > world.now:
            return self._replaced(request, taken[0])
        self._end_expired(request.queue, unique.key)
        held = self._holders(request.queue, unique.key)
        if not held:
            return self._first(request, unique)
        if unique.mode == "error":
            raise Conflict(f"the key is held by {held[0].id}")
        waiting = held[-1]
        if replaces and waiting.status is not JobStatus.IN_PROGRESS:
            self._replace(waiting, request, unique)
            world.count(request.queue, "deduplicated")
            return self._replaced(request, waiting.id)
        if replaces and unique.mode != "replace":
            follow_up = structs.replace(request, after=(After(held[0].id, "continue"),))
            self._store(follow_up)
            world.jobs[request.id].follow_up = True
            return EnqueueOutcome(request.id, follow_up=True)
        return self._drop(request, held[0].id)

    def _holders(self, queue: str, key: str) -> list[ModelJob]:
        """Return the holders of a key, without jobs that a strike ends with the call."""
        ending = {each for each, struck in self._struck.items() if struck.message}
        return self._world.holders(queue, key, but=ending)

    def _end_expired(self, queue: str, key: str) -> None:
        """End jobs that hold the key, wait, and have expired before the call."""
        world = self._world
        expired = [
            job.id
            for job in self._holders(queue, key)
            if job.status is not JobStatus.IN_PROGRESS and world.is_expired(job)
            if job.id not in self._written
        ]
        if expired:
            # Copies: a refused call ends nothing.
            world.jobs = {
                job.id: replace(job, edges={each: replace(e) for each, e in job.edges.items()})
                for job in world.jobs.values()
            }
            end_waiting(world, [world.jobs[each] for each in expired], Cause.EXPIRED)

    def _first(self, request: NewJob, unique: Unique) -> EnqueueOutcome:
        """Store a request whose key no active job has, unless the key cools down."""
        world, window = self._world, (request.queue, unique.key)
        if unique.mode != "cooldown":
            return self._store(request)
        opener, began, ends = world.windows.get(window, (request.id, world.now, world.now))
        if began <= world.now < ends:
            return self._drop(request, opener)
        world.windows[window] = (request.id, world.now, world.now + length(unique.window))
        return self._store(request)

    def _drop(self, request: NewJob, holder: JobId) -> EnqueueOutcome:
        # A request with the dropped request as a parent means the job that holds the key.
        self._stands_for[request.id] = holder
        self._world.count(request.queue, "deduplicated")
        return EnqueueOutcome(holder, deduplicated=True)

    def _replaced(self, request: NewJob, job_id: JobId) -> EnqueueOutcome:
        self._stands_for[request.id] = job_id
        job = self._world.jobs.get(job_id)
        follows = job is not None and job.waits_as_follow_up
        return EnqueueOutcome(job_id, replaced=True, follow_up=follows)

    def _replace(self, job: ModelJob, request: NewJob, unique: Unique) -> None:
        """Give the content of a request to a job that waits."""
        world, old = self._world, job.request
        due = due_at(world, request)
        if unique.at_most is not None:
            due = min(due, job.enqueued_at + length(unique.at_most))
        if due <= world.now:
            # A due job keeps the place in the queue.
            due = min(job.due_at, world.now)
        self._written.add(job.id)
        world.replacements[request.id] = (job.id, world.now + REPLACEMENT_KEPT)
        world.jobs[job.id] = replace(
            job,
            request=structs.replace(
                request,
                id=old.id,
                unique=old.unique,
                after=old.after,
                schedule=old.schedule,
                fingerprint=old.fingerprint or REPLACED,
                sequence=old.sequence,
                struck=None,
            ),
            payload=request.payload,
            due_at=due,
            expires_at=request.expires_at,
            hold=None,
            may_be_held=False,
            checkpoint=None,
            steps=frozenset(),
        )

    def _is_repeat(self, request: NewJob) -> bool:
        stored = self._world.jobs.get(request.id)
        if stored is None:
            return False
        earlier = stored.request
        # What is not kept cannot be compared.
        payload = stored.payload or request.payload
        if earlier.fingerprint == REPLACED:
            same = earlier.queue == request.queue
        elif earlier.fingerprint and request.fingerprint:
            same = earlier.fingerprint == request.fingerprint
        else:
            stored_content = (earlier.kind, earlier.queue, payload)
            same = stored_content == (request.kind, request.queue, request.payload)
        if not same:
            raise Conflict(f"{request.id} is stored with another content")
        return True

    def _store(self, request: NewJob) -> EnqueueOutcome:
        world = self._world
        named = self._parents(request)
        parents = named | {
            parent: named_in_line(named[parent]) if parent in named else rule
            for parent, rule in join(world, request, named).items()
        }
        world.declare(request.queue)
        world.count(request.queue, Cause.ENQUEUED)
        self._written.add(request.id)
        job = world.jobs[request.id] = ModelJob(
            request=request,
            payload=request.payload,
            status=JobStatus.BLOCKED if parents else JobStatus.PENDING,
            due_at=due_at(world, request),
            enqueued_at=world.now,
            token=to_us(world.now),
            expires_at=request.expires_at,
        )
        if request.struck is not None:
            self._struck[request.id] = request.struck
        for parent_id, on_failure in parents.items():
            job.edges[parent_id] = Edge(on_failure)
            parent = world.jobs[parent_id]
            if parent.is_finished:
                job.edges[parent_id].link = TOLD
                add_handover(world, job, parent_id, parent.status)
        return EnqueueOutcome(request.id)

    def _parents(self, request: NewJob) -> dict[JobId, str]:
        """Return each parent -> the consequence of a failure."""
        found: dict[JobId, str] = {}
        for after in request.after:
            parent = self._stands_for.get(after.job_id, after.job_id)
            if parent in self._world.jobs:
                found[parent] = after.on_failure
            else:
                self._missing.append(parent)
        return found


def due_at(world: World, request: NewJob) -> datetime:
    """Return when a request that is accepted now is due."""
    return request.run_at or world.now + (request.delay or ZERO)
