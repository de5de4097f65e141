"""How jobs are claimed, and how claims are kept alive."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from forge_jobs.clock import to_us
from forge_jobs.model.ids import WorkerId
from forge_jobs.model.jobs import Cause, Claim, ClaimedJob, Hold, JobStatus
from forge_jobs.model.processes import Beat, ClaimState, HeldClaim, PodLease, QueueBeat, Slots
from forge_jobs.model.transitions import Demand
from tests.conformance.model.reference.requests import open_requests
from tests.conformance.model.reference.state import WAITING, ZERO, ModelJob, World


def claim(world: World, name: str, demand: Demand, lease: PodLease) -> list[ClaimedJob]:
    queue = world.queues.get(name)
    if queue is None or queue.paused_since:
        return []
    cooling = queue.cooldown_until and queue.cooldown_until > world.now
    if demand.limit < 1 or cooling or not world.is_live(lease):
        return []
    if name not in world.pods[lease.host_id].slots:
        return []
    published = {kind for pod in world.live_pods() for kind in pod.pod.kinds}
    unknown = [job for job in world.waiting(name) if job.request.kind not in published]
    for job in unknown:
        # Which of them a claim meets, and so puts on hold, is up to the store.
        job.may_be_held = True
    taken, is_cut = _take_due(world, name, demand, lease)
    passed_over = {job.request.kind for job in world.due(name)} - demand.kinds
    met_all = len(taken) < demand.limit <= len(demand.worker_ids) and not is_cut
    if met_all and not passed_over & published:
        # But a claim that gives less than was asked for has met them all. Behind jobs that other
        # pods know, and which stay, a claim need not look. A claim may not ask for a kind known a
        # moment ago.
        for job in unknown:
            if not world.is_expired(job) and job.request.kind not in world.once_known:
                job.hold, job.may_be_held = Hold.UNKNOWN_KIND, False
    return taken


def _take_due(
    world: World, name: str, demand: Demand, lease: PodLease
) -> tuple[list[ClaimedJob], bool]:
    """Return the claimed jobs, and whether the bytes of one call left others behind."""
    if world.has_shares(name):
        return _take_in_turn(world, name, demand, lease), False
    taken: list[ClaimedJob] = []
    size = 0
    for job in world.due(name):
        if job.request.kind in demand.kinds and len(taken) < demand.limit:
            worker_id = demand.worker_ids[len(taken)] if len(taken) < len(demand.worker_ids) else ""
            if (job.crashes and not worker_id) or world.is_full(job):
                continue
            size += len(job.payload.encode())
            if taken and size > demand.max_bytes:
                return taken, True
            taken.append(_take(world, job, worker_id, lease))
    return taken, False


def _take_in_turn(world: World, name: str, demand: Demand, lease: PodLease) -> list[ClaimedJob]:
    """Take jobs of the keys that take turns, then others: in one claim they come in any order."""
    due = [job for job in world.due(name) if job.request.kind in demand.kinds]
    shared = [job for job in due if (limit := world.limit_of(job)) and limit.share]
    others = [job for job in due if job not in shared]
    turns = world.turns
    # A key has its first turn when its first job is due.
    first: dict[tuple[str, str, str], datetime] = {}
    for job in shared:
        first[job.permit] = min(first.get(job.permit, job.due_at), job.due_at)
    world.turns = {key: turns.get(key, since) for key, since in first.items()}
    taken: list[ClaimedJob] = []
    chosen: list[ModelJob] = []
    while len(taken) < demand.limit:
        free = [job for job in shared if job not in chosen and not world.is_full(job)]
        if not free:
            free = [job for job in others if job not in chosen and not world.is_full(job)][:1]
        if not free:
            break
        # Of the jobs of one key the first one comes first.
        job = min(free, key=lambda each: _rank(world, each))
        chosen.append(job)
        taken.append(_take(world, job, demand.worker_ids[len(taken)], lease))
    for job in chosen:
        world.turns[job.permit] = world.now
    return taken


def _rank(world: World, job: ModelJob) -> tuple[Any, ...]:
    """By priority, by the jobs that run in proportion to the share, by turn, in the queue."""
    limit = world.limit_of(job)
    used = world.used(job) / (limit.share or 1) if limit else 0
    turn = world.turns.get(job.permit, job.due_at)
    return job.request.priority, used, turn, job.due_at, job.id


def _take(world: World, job: ModelJob, worker_id: str, lease: PodLease) -> ClaimedJob:
    job.status = JobStatus.IN_PROGRESS
    job.attempt += 1
    job.token = max(job.token + 1, to_us(world.now))
    job.host_id, job.worker_id = lease.host_id, WorkerId(worker_id)
    job.claimed_at = job.heartbeat_at = world.now
    job.started_at = job.finished_at = None
    world.count(job.queue, "claimed")
    request = job.request
    return ClaimedJob(
        claim=job.claim,
        kind=request.kind,
        payload=job.payload,
        attempt=job.attempt,
        max_attempts=request.max_attempts,
        crashes=job.crashes,
        snoozes=job.snoozes,
        priority=request.priority,
        timeout=request.timeout,
        tags=request.tags,
        metadata=request.metadata,
        trace=request.trace,
        run_at=job.due_at,
        enqueued_at=job.enqueued_at,
        keep_result=request.keep_result,
        cancel_requested=job.cancel_requested,
        schedule=request.schedule,
        snoozed_since=job.snoozed_since,
        rate_limit=(job.rate_limit or "") if job.cause is Cause.RATE_LIMITED else "",
    )


def record_start(world: World, claims: Sequence[Claim]) -> list[bool]:
    answers = []
    for each in claims:
        job = world.jobs.get(each.job_id)
        current = job is not None and job.is_current(each)
        if job is not None and current:
            job.started_at = job.started_at or world.now
        answers.append(current)
    return answers


def heartbeat(
    world: World, lease: PodLease, claims: Sequence[HeldClaim], lease_for: timedelta
) -> Beat:
    lease_held = world.is_live(lease)
    if lease_held:
        pod = world.pods[lease.host_id]
        pod.last_beat_at, pod.until = world.now, world.now + lease_for
    states = {held.claim: _renew(world, held, lease) for held in claims}
    mine = [job.claim for job in world.claimed(lease.host_id)]
    return Beat(
        lease_held=lease_held,
        claims=states,
        unknown=tuple(each for each in mine if each not in states),
        queues=_queue_beats(world, lease),
        handovers=bool(world.handovers),
        letters=bool(world.letters),
        requests=lease_held and bool(open_requests(world, lease)),
        now=world.now,
    )


def _renew(world: World, held: HeldClaim, lease: PodLease) -> ClaimState:
    job = world.jobs.get(held.claim.job_id)
    if job is None or not job.is_current(held.claim) or job.host_id != lease.host_id:
        return ClaimState.LOST
    job.heartbeat_at = world.now
    if held.worker_id:
        job.worker_id = WorkerId(held.worker_id)
        job.started_at = job.started_at or world.now
    return ClaimState.CANCEL_REQUESTED if job.cancel_requested else ClaimState.HELD


def _queue_beats(world: World, lease: PodLease) -> dict[str, QueueBeat]:
    pod = world.pods.get(lease.host_id)
    if pod is None or pod.epoch != lease.epoch:
        return {}
    return {
        name: QueueBeat(
            slots=slots if pod.until > world.now else Slots(0, 0),
            state=world.queue_state(world.queues[name]),
            next_due_in=_next_due_in(world, name),
        )
        for name, slots in pod.slots.items()
    }


def _next_due_in(world: World, name: str) -> timedelta | None:
    free = [job for job in world.of_queue(name) if job.status in WAITING and job.hold is None]
    waiting = [job.due_at for job in free]
    return max(ZERO, min(waiting) - world.now) if waiting else None
