"""Ends of claims: finalize, release, revive. Ends of waiting jobs."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import ERROR_HISTORY, TERMINAL, Cause, Claim, JobStatus
from forge_jobs.model.transitions import (
    Cooldown,
    Finalization,
    Handover,
    Occurrence,
    Revival,
    StaleClaim,
    StaleClaims,
    Transition,
)
from tests.conformance.model.reference.letters import leave_letter
from tests.conformance.model.reference.state import (
    LEFT,
    LIVE,
    REPLACED,
    TOLD,
    ModelJob,
    World,
)

RELEASED = Transition(status=JobStatus.PENDING, cause=Cause.RELEASED, hand_back=True)


def finalize(world: World, finalizations: Sequence[Finalization]) -> list[bool]:
    return _by_owner(
        world,
        [item.claim for item in finalizations],
        lambda index, job: _end_claim(world, job, finalizations[index].transition),
    )


def release(world: World, claims: Sequence[Claim]) -> list[bool]:
    return _by_owner(world, claims, lambda _, job: _hand_back(world, job))


def _by_owner(
    world: World, claims: Sequence[Claim], end: Callable[[int, ModelJob], None]
) -> list[bool]:
    """Items do not see each other: a token that was settled before the call is so for all."""
    before = {job.id: job.settled_token for job in world.jobs.values()}
    answers = []
    for index, claim in enumerate(claims):
        job = world.jobs.get(claim.job_id)
        if job is not None and job.is_current(claim):
            end(index, job)
            job.settled_token = claim.token
            answers.append(True)
        else:
            answers.append(
                job is not None
                and job.queue == claim.queue
                and claim.token in {job.settled_token, before[job.id]} - {0}
                and (claim.token != job.token or claim.host_id == job.host_id)
            )
    return answers


def revive(world: World, revivals: Sequence[Revival], stale_after: timedelta) -> list[bool]:
    answers = []
    for item in revivals:
        job = world.jobs.get(item.claim.job_id)
        stale = (
            job is not None and job.is_current(item.claim) and _is_stale(world, job, stale_after)
        )
        if job is not None and stale:
            _end_claim(world, job, item.transition, cancel_spares_done=False)
        answers.append(stale)
    return answers


def stale_claims(world: World, stale_after: timedelta, limit: int) -> StaleClaims:
    stale = [job for job in world.claimed() if _is_stale(world, job, stale_after)]
    stale.sort(key=lambda job: (job.heartbeat_at, job.id))
    claims = [
        StaleClaim(
            claim=job.claim,
            kind=job.request.kind,
            attempt=job.attempt,
            max_attempts=job.request.max_attempts,
            crashes=job.crashes,
            started=job.started_at is not None,
            cancel_requested=job.cancel_requested,
        )
        for job in stale[:limit]
    ]
    return StaleClaims(claims, read_at={"": world.now})


def _is_stale(world: World, job: ModelJob, stale_after: timedelta) -> bool:
    assert job.heartbeat_at is not None
    return job.heartbeat_at + stale_after <= world.now


def _end_claim(
    world: World, job: ModelJob, wished: Transition, *, cancel_spares_done: bool = True
) -> None:
    spared = cancel_spares_done and wished.status is JobStatus.DONE
    transition = wished
    if job.cancel_requested and not spared:
        ends = {"status": JobStatus.CANCELLED, "cause": Cause.CANCELLED, "result": None}
        transition = replace(wished, **ends, hold=None)
    job.result, job.result_expires_at = transition.result, None
    if transition.result is not None and job.request.result_ttl is not None:
        job.result_expires_at = world.now + job.request.result_ttl
    if transition.status not in TERMINAL:
        job.due_at = _due_again(world, job, transition.delay)
    _apply(world, job, transition)
    if transition is wished and transition.again is not None:
        _begin_again(job, transition.again)


def _begin_again(job: ModelJob, again: Occurrence) -> None:
    """Keep id, key, children, errors and place. All that counts runs begins at zero."""
    fingerprint = job.request.fingerprint or REPLACED
    job.request = replace(job.request, metadata=again.metadata, fingerprint=fingerprint)
    job.payload = again.payload
    job.attempt = job.crashes = job.snoozes = 0
    job.snoozed_since = None
    job.forget_steps()


def _due_again(world: World, job: ModelJob, delay: timedelta | None) -> datetime:
    return min(job.due_at, world.now) if delay is None else world.now + delay


def _hand_back(world: World, job: ModelJob) -> None:
    """Due and result stay as they were."""
    if not job.cancel_requested:
        job.due_at = _due_again(world, job, None)
    cancelled = replace(RELEASED, status=JobStatus.CANCELLED, cause=Cause.CANCELLED)
    _apply(world, job, cancelled if job.cancel_requested else RELEASED)


def _apply(world: World, job: ModelJob, transition: Transition) -> None:
    if world.is_full(job):
        # The turn of a key that was full begins when the key has room.
        world.turns[job.permit] = world.now
    job.status, job.cause = transition.status, transition.cause
    job.attempt -= transition.hand_back
    if transition.count_snooze and not job.snoozes:
        job.snoozed_since = world.now
    job.snoozes += transition.count_snooze
    job.rate_limit, job.hold = transition.rate_limit, transition.hold
    job.crashes += transition.count_crash
    job.cancel_requested = False
    job.finished_at = world.now if job.is_finished else None
    if transition.error is not None:
        stamped = replace(transition.error, at=world.now)
        job.errors = (*job.errors, stamped)[-ERROR_HISTORY:]
    world.count(job.queue, transition.cause)
    if transition.cooldown is not None:
        _cool_down(world, job.queue, transition.cooldown)
    if job.is_finished:
        _finish(world, job)


def _cool_down(world: World, name: str, cooldown: Cooldown) -> None:
    queue, level = world.queues[name], cooldown.level
    until = world.now + cooldown.length
    if queue.cooldown_until is not None:
        if world.now < queue.cooldown_until + queue.settings.cooldown.quiet:
            level = max(level, queue.cooldown_level)
        until = max(until, queue.cooldown_until)
    queue.cooldown_until, queue.cooldown_level = until, level


def end_waiting(world: World, jobs: Iterable[ModelJob], cause: Cause) -> None:
    """Cancel jobs that no handler runs."""
    for job in jobs:
        job.status, job.cause = JobStatus.CANCELLED, cause
        job.finished_at = world.now
        job.hold, job.may_be_held = None, False
        world.count(job.queue, cause)
        _finish(world, job)


def _finish(world: World, job: ModelJob) -> None:
    leave_letter(world, job)
    kept: timedelta = getattr(world.queues[job.queue].settings.retention, job.status.value)
    if not kept:
        job.payload = ""
    tell_children(world, job.id, job.status)


def settle_if_last(world: World, child: ModelJob) -> None:
    """A blocked job that waits for no parent any more is pending."""
    if not any(edge.state.waits for edge in child.edges.values()):
        asked = child.request.run_at or child.request.delay
        child.status, child.cause = JobStatus.PENDING, Cause.PARENTS_SETTLED
        child.due_at = max(child.due_at, world.now) if asked else world.now
        world.count(child.queue, Cause.PARENTS_SETTLED)


def tell_children(
    world: World, parent_id: JobId, status: JobStatus, *, removed: bool = False
) -> None:
    """Write a handover for every child whose edge to this parent has not settled."""
    for child in sorted(world.jobs.values(), key=lambda job: job.id):
        edge = child.edges.get(parent_id)
        if edge is None or edge.link not in {LIVE, TOLD}:
            continue
        if edge.link == LIVE:
            add_handover(world, child, parent_id, status)
        edge.link = LEFT if removed else TOLD


def add_handover(world: World, child: ModelJob, parent_id: JobId, status: JobStatus) -> None:
    world.handovers.append(
        Handover(
            id=str(world.new_number()),
            queue=child.queue,
            child_id=child.id,
            parent_id=parent_id,
            parent_status=status,
            on_failure=child.edges[parent_id].on_failure,
        )
    )
