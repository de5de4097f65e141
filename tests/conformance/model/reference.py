"""What a job store is believed to be: dicts, and the rules of the protocol's prose.

Written from the prose alone and as plainly as it can be: no indexes, no batches, no
concurrency. Whatever a real store answers must be what this answers.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import HostId, JobId
from forge_jobs.model.jobs import (
    ACTIVE,
    TERMINAL,
    Cause,
    Claim,
    EnqueueOutcome,
    JobStatus,
    NewJob,
    Refusal,
)
from forge_jobs.model.processes import ClaimState, PodLease
from forge_jobs.model.transitions import Transition

LEASE = timedelta(seconds=15)
_WAITING = (JobStatus.PENDING, JobStatus.FAILED)
_CANCELLED = Transition(status=JobStatus.CANCELLED, cause=Cause.CANCELLED)


@dataclass
class ModelJob:
    """One job. ``blurred``: ended by a cancel, whose attempt arithmetic the prose leaves open."""

    id: JobId
    queue: str
    priority: int
    due: datetime
    key: str | None
    expires: datetime | None
    status: JobStatus = JobStatus.PENDING
    cause: Cause = Cause.ENQUEUED
    attempt: int = 0
    token: int = 0
    crashes: int = 0
    snoozes: int = 0
    asked: bool = False
    settled: int | None = None
    beat: datetime | None = None
    host: HostId | None = None
    result: str | None = None
    blurred: bool = False

    @property
    def active(self) -> bool:
        return self.status in ACTIVE

    def is_current(self, claim: Claim) -> bool:
        return (
            self.status is JobStatus.IN_PROGRESS
            and self.token == claim.token
            and self.queue == claim.queue
        )


@dataclass
class ModelPod:
    epoch: str
    until: datetime


@dataclass
class ReferenceStore:
    """The whole store. Every method answers what the protocol's method must answer."""

    clock: ManualClock
    jobs: dict[JobId, ModelJob] = field(default_factory=dict)
    pods: dict[HostId, ModelPod] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    cooling: dict[str, datetime] = field(default_factory=dict)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    accepted: int = 0
    deleted: int = 0

    def holder(self, queue: str, key: str | None) -> ModelJob | None:
        """The active job that holds a key."""
        if key is None:
            return None
        matches = [j for j in self.jobs.values() if j.active and (j.queue, j.key) == (queue, key)]
        assert len(matches) <= 1, f"two active jobs hold {key!r}"
        return matches[0] if matches else None

    def enqueue(self, request: NewJob) -> EnqueueOutcome:
        if request.id in self.jobs:
            return EnqueueOutcome(request.id)
        key = request.unique.key if request.unique else None
        if holder := self.holder(request.queue, key):
            self.counts[request.queue, "deduplicated"] += 1
            return EnqueueOutcome(holder.id, True)
        due = self.clock.now() + (request.delay or timedelta(0))
        self.jobs[request.id] = ModelJob(
            request.id, request.queue, request.priority, due, key, request.expires_at
        )
        self.accepted += 1
        self.counts[request.queue, "enqueued"] += 1
        return EnqueueOutcome(request.id)

    # -- claims

    def is_live(self, lease: PodLease) -> bool:
        pod = self.pods.get(lease.host_id)
        return pod is not None and pod.epoch == lease.epoch and pod.until > self.clock.now()

    def is_expired(self, job: ModelJob) -> bool:
        return job.expires is not None and job.expires <= self.clock.now()

    def due(self, queue: str) -> list[ModelJob]:
        now = self.clock.now()
        due = [
            job
            for job in self.jobs.values()
            if job.queue == queue
            and job.status in _WAITING
            and job.due <= now
            and not self.is_expired(job)
        ]
        return sorted(due, key=lambda job: (job.priority, job.due, job.id))

    def claim(self, queue: str, workers: int, limit: int, lease: PodLease) -> list[ModelJob]:
        """The jobs taken, in order; the first ``workers`` of them for a worker."""
        now = self.clock.now()
        cooling = self.cooling.get(queue, now) > now
        if queue in self.paused or cooling or not self.is_live(lease):
            return []
        taken: list[ModelJob] = []
        for job in self.due(queue):
            if len(taken) == limit:
                break
            if job.crashes and len(taken) >= workers:
                continue
            job.status, job.host, job.beat = JobStatus.IN_PROGRESS, lease.host_id, now
            job.attempt += 1
            job.token += 1
            self.counts[queue, "claimed"] += 1
            taken.append(job)
        return taken

    def finalize(self, claims: list[Claim], transition: Transition) -> list[bool]:
        before = self._settled()
        return [self._settle(each, transition, before) for each in claims]

    def _settled(self) -> dict[JobId, int | None]:
        """The settled tokens as a call finds them: its items do not see each other."""
        return {job.id: job.settled for job in self.jobs.values()}

    def _settle(
        self, claim: Claim, transition: Transition, before: dict[JobId, int | None]
    ) -> bool:
        job = self.jobs.get(claim.job_id)
        if job is None or job.queue != claim.queue:
            return False
        if not job.is_current(claim):
            return claim.token in {job.settled, before[job.id]}
        overruled = job.asked and transition.status is not JobStatus.DONE
        self._apply(job, _CANCELLED if overruled else transition, blurred=overruled)
        job.settled = claim.token
        if transition.cooldown:
            until = self.clock.now() + transition.cooldown.length
            self.cooling[job.queue] = max(self.cooling.get(job.queue, until), until)
        return True

    def release(self, claims: list[Claim]) -> list[bool]:
        before = self._settled()
        return [self._release(each, before) for each in claims]

    def _release(self, claim: Claim, before: dict[JobId, int | None]) -> bool:
        job = self.jobs.get(claim.job_id)
        due = job.due if job else self.clock.now()
        handed_back = Transition(
            status=JobStatus.PENDING,
            cause=Cause.RELEASED,
            delay=due - self.clock.now(),
            hand_back=True,
            result=job.result if job else None,
        )
        return self._settle(claim, handed_back, before)

    def is_stale(self, job: ModelJob) -> bool:
        return (
            job.status is JobStatus.IN_PROGRESS
            and job.beat is not None
            and job.beat + LEASE <= self.clock.now()
        )

    def stale(self) -> list[ModelJob]:
        return [job for job in self.jobs.values() if self.is_stale(job)]

    def revive(self, claim: Claim, transition: Transition) -> bool:
        job = self.jobs.get(claim.job_id)
        if job is None or not job.is_current(claim) or not self.is_stale(job):
            return False
        self._apply(job, _CANCELLED if job.asked else transition, blurred=job.asked)
        return True

    def beat(self, lease: PodLease, claims: list[Claim]) -> dict[Claim, ClaimState]:
        """The state of each claim; the lease is renewed by the way."""
        if self.is_live(lease):
            self.pods[lease.host_id].until = self.clock.now() + LEASE
        states = {}
        for claim in claims:
            job = self.jobs.get(claim.job_id)
            if job is None or not job.is_current(claim):
                states[claim] = ClaimState.LOST
                continue
            job.beat = self.clock.now()
            states[claim] = ClaimState.CANCEL_REQUESTED if job.asked else ClaimState.HELD
        return states

    def held_by(self, host: HostId) -> set[Claim]:
        return {
            Claim(job.queue, job.id, job.token)
            for job in self.jobs.values()
            if job.status is JobStatus.IN_PROGRESS and job.host == host
        }

    def _apply(self, job: ModelJob, transition: Transition, *, blurred: bool) -> None:
        job.status, job.cause, job.blurred = transition.status, transition.cause, blurred
        job.attempt -= transition.hand_back
        job.snoozes += transition.count_snooze
        job.crashes += transition.count_crash
        job.result = transition.result
        if not blurred:
            job.due = self.clock.now() + transition.delay
        self.counts[job.queue, transition.cause.value] += 1

    # -- operators

    def cancel(self, job_id: JobId) -> Refusal | None:
        job = self.jobs.get(job_id)
        if job is None:
            return Refusal.NOT_FOUND
        if job.status in TERMINAL:
            return Refusal.FINISHED
        if job.status is JobStatus.IN_PROGRESS:
            job.asked = True
        else:
            self._end(job, Cause.CANCELLED)
        return None

    def delete(self, job_id: JobId) -> Refusal | None:
        job = self.jobs.get(job_id)
        if job is None:
            return Refusal.NOT_FOUND
        if job.status is JobStatus.IN_PROGRESS:
            return Refusal.RUNNING
        del self.jobs[job_id]
        self.deleted += 1
        return None

    def requeue(self, job_id: JobId) -> Refusal | None:
        job = self.jobs.get(job_id)
        if job is None:
            return Refusal.NOT_FOUND
        refusals = {
            JobStatus.DONE: Refusal.FINISHED,
            JobStatus.IN_PROGRESS: Refusal.RUNNING,
            JobStatus.PENDING: Refusal.WAITING,
        }
        if job.status in refusals:
            return refusals[job.status]
        if not job.active and self.holder(job.queue, job.key):
            return Refusal.KEY_TAKEN
        job.status, job.cause, job.due = JobStatus.PENDING, Cause.REQUEUED, self.clock.now()
        job.attempt = job.crashes = job.snoozes = 0
        job.asked = job.blurred = False
        self.counts[job.queue, "requeued"] += 1
        return None

    def run_now(self, job_id: JobId) -> Refusal | None:
        job = self.jobs.get(job_id)
        if job is None:
            return Refusal.NOT_FOUND
        if job.status is JobStatus.IN_PROGRESS:
            return Refusal.RUNNING
        if job.status in TERMINAL:
            return Refusal.FINISHED
        job.due = min(job.due, self.clock.now())
        return None

    def expire(self) -> int:
        expired = [j for j in self.jobs.values() if j.status in _WAITING and self.is_expired(j)]
        for job in expired:
            self._end(job, Cause.EXPIRED)
        return len(expired)

    def _end(self, job: ModelJob, cause: Cause) -> None:
        job.status, job.cause = JobStatus.CANCELLED, cause
        self.counts[job.queue, cause.value] += 1
