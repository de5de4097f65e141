"""The contents of a store, as plain Python: a few dataclasses in dicts."""

import json
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from forge_jobs.clock import ManualClock
from forge_jobs.model.edges import EdgeState
from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.failures import FailureSample
from forge_jobs.model.ids import HostId, JobId, WorkerId
from forge_jobs.model.jobs import (
    ACTIVE,
    TERMINAL,
    Cause,
    Claim,
    ErrorRecord,
    Hold,
    Job,
    JobStatus,
    NewJob,
)
from forge_jobs.model.letters import Letter
from forge_jobs.model.pod_requests import PodRequest
from forge_jobs.model.processes import Pod, PodGauges, PodLease, Slots
from forge_jobs.model.progress import LogLine, Progress
from forge_jobs.model.queues import LimitState, QueueSettings, QueueState, RateLimit
from forge_jobs.model.schedules import ScheduleSpec
from forge_jobs.model.series import FlowSample
from forge_jobs.model.strikes import name_of
from forge_jobs.model.transitions import Handover

ZERO = timedelta(0)
MINUTE = timedelta(minutes=1)
WAITING = frozenset({JobStatus.PENDING, JobStatus.FAILED})
REPLACED = "replaced by other content"
LIVE, TOLD, LEFT, CUT = "live", "told", "left", "cut"


@dataclass
class Edge:
    """The state of a dependency, in the child and in the parent.

    ``link``: live when the parent's next end makes a handover, told until such a handover is
    delivered, left when the parent was removed before that, cut when there is nothing more to
    deliver.
    """

    on_failure: str
    state: EdgeState = EdgeState.OPEN
    link: str = LIVE

    @property
    def has_news(self) -> bool:
        return self.link in {TOLD, LEFT}

    def hear(self, state: EdgeState) -> None:
        """Deliver a handover."""
        self.state = state
        was_told = self.link == TOLD
        self.link = LIVE if was_told and state.hears else CUT


@dataclass
class ModelAttempt:
    """The words of the runs of one attempt. ``before``: the lines of earlier runs."""

    token: int = 0
    seq: int = 0
    before: int = 0
    lines: list[LogLine] = field(default_factory=list)
    progress: Progress | None = None

    @property
    def number(self) -> int:
        """Of the last line."""
        return self.before + self.seq


@dataclass
class ModelJob:
    """A stored job. What is not named here is as the request said."""

    request: NewJob
    payload: str
    status: JobStatus
    due_at: datetime
    enqueued_at: datetime
    expires_at: datetime | None
    cause: Cause = Cause.ENQUEUED
    attempt: int = 0
    token: int = 0
    settled_token: int = 0
    crashes: int = 0
    snoozes: int = 0
    snoozed_since: datetime | None = None
    rate_limit: str | None = None
    claimed_at: datetime | None = None
    started_at: datetime | None = None
    heartbeat_at: datetime | None = None
    finished_at: datetime | None = None
    hold: Hold | None = None
    host_id: HostId = field(default=HostId(""))
    worker_id: WorkerId = field(default=WorkerId(""))
    cancel_requested: bool = False
    result: str | None = None
    result_expires_at: datetime | None = None
    errors: tuple[ErrorRecord, ...] = ()
    edges: dict[JobId, Edge] = field(default_factory=dict)
    follow_up: bool = False
    told: dict[int, ModelAttempt] = field(default_factory=dict)
    checkpoint: str | None = None
    steps: frozenset[str] = frozenset()
    may_be_held: bool = False
    """True: a claim may have put the job on hold, or not. The contract leaves that to the store."""

    @property
    def id(self) -> JobId:
        return self.request.id

    @property
    def queue(self) -> str:
        return self.request.queue

    @property
    def key(self) -> str | None:
        return self.request.unique.key if self.request.unique else None

    @property
    def permit(self) -> tuple[str, str, str]:
        return self.queue, self.request.limit_name, self.request.limit_key

    @property
    def waits_as_follow_up(self) -> bool:
        return self.follow_up and self.status is JobStatus.BLOCKED

    @property
    def claim(self) -> Claim:
        """The last one."""
        return Claim(self.queue, self.id, self.token, self.host_id)

    @property
    def is_active(self) -> bool:
        return self.status in ACTIVE

    @property
    def is_finished(self) -> bool:
        return self.status in TERMINAL

    def forget_steps(self) -> None:
        """Forget the checkpoint, and which steps were taken in transactions of handlers."""
        self.checkpoint, self.steps = None, frozenset()

    def is_current(self, claim: Claim) -> bool:
        return self.status is JobStatus.IN_PROGRESS and claim == self.claim

    def _is_settled(self, edge: Edge) -> bool:
        return self.status is not JobStatus.BLOCKED or not edge.state.waits

    def view(self) -> Job:
        """The record that a store must show."""
        request = self.request
        waits = {parent: e.state for parent, e in self.edges.items() if not self._is_settled(e)}
        return Job(
            id=request.id,
            queue=request.queue,
            kind=request.kind,
            payload=self.payload,
            status=self.status,
            cause=self.cause,
            priority=request.priority,
            attempt=self.attempt,
            max_attempts=request.max_attempts,
            token=self.token,
            crashes=self.crashes,
            snoozes=self.snoozes,
            enqueued_at=self.enqueued_at,
            due_at=self.due_at,
            claimed_at=self.claimed_at,
            started_at=self.started_at,
            heartbeat_at=self.heartbeat_at,
            finished_at=self.finished_at,
            expires_at=self.expires_at,
            timeout=request.timeout,
            unique_key=self.key,
            hold=self.hold,
            host_id=self.host_id,
            worker_id=self.worker_id,
            cancel_requested=self.cancel_requested,
            tags=request.tags,
            metadata=json.loads(request.metadata),
            trace=request.trace,
            schedule=request.schedule,
            keep_result=request.keep_result,
            result=self.result,
            errors=self.errors,
            waits_for=tuple(sorted(waits)),
            held_by=tuple(sorted(p for p, state in waits.items() if state is EdgeState.HELD)),
            rate_limit=self.rate_limit if self.cause is Cause.RATE_LIMITED else None,
            struck_by=name_of(self.rate_limit) if self.cause is Cause.STRUCK else None,
            follow_up=self.follow_up,
            limit_name=request.limit_name,
            limit_key=request.limit_key,
        )


class Member(NamedTuple):
    """The sequence of a job, and what follows a failure of the one before."""

    line: tuple[str, str]
    on_failure: str


class Place(NamedTuple):
    """The jobs that one which comes back waits for.

    :ivar is_new: the job has left the place that it had, and comes last
    :ivar behind: jobs that wait for the job by way of other sequences alone
    """

    after: Collection[JobId]
    is_new: bool
    behind: Collection[JobId] = ()


@dataclass
class ModelPod:
    """A registered pod. ``slots``: the declared queues, none of them granted at first."""

    pod: Pod
    epoch: str
    started_at: datetime
    last_beat_at: datetime
    until: datetime
    slots: dict[str, Slots]
    draining: bool = False
    quiet: bool = False
    gauges: PodGauges | None = None


@dataclass
class ModelQueue:
    name: str
    settings: QueueSettings = field(default_factory=QueueSettings)
    overridden: frozenset[str] = frozenset()
    declared: QueueSettings | None = None
    paused_since: datetime | None = None
    cooldown_until: datetime | None = None
    cooldown_level: int = 0
    version: int = 0


@dataclass
class ModelBucket:
    """A leaky bucket: ``taken`` microsecond-shares of tokens that have not leaked out yet."""

    limit: RateLimit
    taken: int
    at: datetime
    overridden: bool
    last_turn_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class ModelSchedule:
    spec: ScheduleSpec
    next_at: datetime | None
    edited: bool
    version: int = 0
    paused: bool = False
    deleted: bool = False
    last_fired_at: datetime | None = None
    fired: int = 0
    skipped: int = 0
    error: str = ""


@dataclass
class ModelLeader:
    host_id: HostId
    term: int
    until: datetime


@dataclass
class World:
    """Everything one store holds, and the queries that all modules use."""

    clock: ManualClock
    jobs: dict[JobId, ModelJob] = field(default_factory=dict)
    pods: dict[HostId, ModelPod] = field(default_factory=dict)
    queues: dict[str, ModelQueue] = field(default_factory=dict)
    handovers: list[Handover] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    pod_requests: list[PodRequest] = field(default_factory=list)
    buckets: dict[str, ModelBucket] = field(default_factory=dict)
    rate_keys: dict[tuple[str, str], ModelBucket] = field(default_factory=dict)
    limits: dict[tuple[str, str], LimitState] = field(default_factory=dict)
    turns: dict[tuple[str, str, str], datetime] = field(default_factory=dict)
    """The last turn of each key that waits for another one."""
    schedules: dict[str, ModelSchedule] = field(default_factory=dict)
    leader: ModelLeader | None = None
    counts: Counter[tuple[str, datetime, str]] = field(default_factory=Counter)
    latencies: Counter[tuple[str, datetime, str, int]] = field(default_factory=Counter)
    failures: list[FailureSample] = field(default_factory=list)
    flows: list[FlowSample] = field(default_factory=list)
    gauges: dict[tuple[datetime, HostId], PodGauges] = field(default_factory=dict)
    events: list[TimelineEvent] = field(default_factory=list)
    windows: dict[tuple[str, str], tuple[JobId, datetime, datetime]] = field(default_factory=dict)
    """The job that opened the window of a queue and key, and when the window began and ends."""
    members: dict[JobId, Member] = field(default_factory=dict)
    """The stored jobs of sequences."""
    last: dict[tuple[str, str], JobId] = field(default_factory=dict)
    """The last job of each sequence, by the queue and the key, as long as that job is stored."""
    places: dict[JobId, Place | None] = field(default_factory=dict)
    """Found for the jobs that the call lets wait again."""
    replacements: dict[JobId, tuple[JobId, datetime]] = field(default_factory=dict)
    """Requests, the jobs that have their content, and until when this is known."""
    accepted: int = 0
    removed: int = 0
    issued: int = 0
    """How many opaque values (epochs, versions, numbers) were made up so far."""
    forgotten: set[str] = field(default_factory=set)
    """Queues that were deleted, and that nothing has named since."""
    outlived: set[JobId] = field(default_factory=set)
    """Jobs that were removed before one of their children."""
    once_known: set[str] = field(default_factory=set)
    """Kinds that a pod has registered with."""

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def new_number(self) -> int:
        self.issued += 1
        return self.issued

    # -- queues and counts

    def declare(self, name: str) -> ModelQueue:
        self.forgotten.discard(name)
        return self.queues.setdefault(name, ModelQueue(name))

    def forget(self, queue: ModelQueue) -> None:
        """Void the declarations of pods whose lease has run out."""
        del self.queues[queue.name]
        self.forgotten.add(queue.name)
        for key in [key for key in self.limits if key[0] == queue.name]:
            del self.limits[key]
        for pod in self.pods.values():
            pod.slots.pop(queue.name, None)

    def queue_state(self, queue: ModelQueue) -> QueueState:
        until = queue.cooldown_until
        return QueueState(
            name=queue.name,
            settings=queue.settings,
            overridden=queue.overridden,
            paused=queue.paused_since is not None,
            paused_since=queue.paused_since,
            cooldown_remaining=max(ZERO, until - self.now) if until else ZERO,
            cooldown_level=queue.cooldown_level,
            cooldown_ended_for=max(ZERO, self.now - until) if until else None,
        )

    def count(self, queue: str, name: str) -> None:
        minute = self.now.replace(second=0, microsecond=0)
        self.counts[queue, minute, str(name)] += 1

    def note(self, kind: EventKind, job: ModelJob, detail: str = "") -> None:
        event = TimelineEvent(at=self.now, kind=kind, queue=job.queue, job_id=job.id, detail=detail)
        self.events.append(event)

    # -- jobs

    def of_queue(self, queue: str) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.queue == queue]

    def holders(self, queue: str, key: str | None, but: Collection[JobId] = ()) -> list[ModelJob]:
        """Return the active jobs with a key: the holder, then a waiting follow-up."""
        if key is None:
            return []
        active = [job for job in self.of_queue(queue) if job.is_active and job.id not in but]
        found = [job for job in active if job.key == key]
        found.sort(key=lambda job: job.waits_as_follow_up)
        extra = [job for job in found[1:] if not job.waits_as_follow_up]
        assert not found[2:], f"these jobs hold {key!r}: {found}"
        assert not extra, f"these jobs hold {key!r}: {found}"
        return found

    def holder(self, queue: str, key: str | None) -> ModelJob | None:
        """Return the active job that holds a key."""
        return next(iter(self.holders(queue, key)), None)

    def is_expired(self, job: ModelJob) -> bool:
        return job.expires_at is not None and job.expires_at <= self.now

    def waiting(self, queue: str) -> list[ModelJob]:
        """Return the jobs that were due at some time, including those that have expired since."""
        return [
            job
            for job in self.of_queue(queue)
            if job.status in WAITING and job.hold is None and job.due_at <= self.now
        ]

    def due(self, queue: str) -> list[ModelJob]:
        """Return the jobs that could be claimed, were their kinds known, in the order of claims."""
        found = [job for job in self.waiting(queue) if not self.is_expired(job)]
        return sorted(found, key=lambda job: (job.request.priority, job.due_at, job.id))

    def is_full(self, job: ModelJob) -> bool:
        """Return whether as many jobs of the job's limit and key run as may."""
        limit = self.limit_of(job)
        return limit is not None and self.used(job) >= limit.at_most

    def limit_of(self, job: ModelJob) -> LimitState | None:
        name = job.request.limit_name
        return self.limits.get((job.queue, name)) if name else None

    def used(self, job: ModelJob) -> int:
        """Return how many jobs of the job's limit and key run."""
        return sum(
            each.status is JobStatus.IN_PROGRESS and each.permit == job.permit
            for each in self.of_queue(job.queue)
        )

    def has_shares(self, queue: str) -> bool:
        """Return whether keys of the queue take turns."""
        return any(each.queue == queue and each.share for each in self.limits.values())

    def claimed(self, host_id: HostId | None = None) -> list[ModelJob]:
        return [
            job
            for job in self.jobs.values()
            if job.status is JobStatus.IN_PROGRESS and host_id in {None, job.host_id}
        ]

    def remove(self, job: ModelJob) -> None:
        del self.jobs[job.id]
        self.removed += 1
        # A job that is stored again under the id hears of no end that the removed one has missed.
        self.handovers = [each for each in self.handovers if each.child_id != job.id]
        if any(job.id in each.edges for each in self.jobs.values()):
            self.outlived.add(job.id)

    # -- pods

    def is_live(self, lease: PodLease) -> bool:
        pod = self.pods.get(lease.host_id)
        return pod is not None and pod.epoch == lease.epoch and pod.until > self.now

    def live_pods(self) -> list[ModelPod]:
        return [pod for pod in self.pods.values() if pod.until > self.now]

    def move_versions(self, *names: str) -> None:
        for name in set(names):
            self.queues[name].version = self.new_number()
