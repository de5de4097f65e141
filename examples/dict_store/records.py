"""The data of the store: plain dicts of jobs, pods, queues and counts."""

from collections import Counter, defaultdict
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from forge_jobs.clock import Clock, from_us, to_us
from forge_jobs.model.ids import HostId, JobId, WorkerId
from forge_jobs.model.jobs import Cause, Claim, Job, JobStatus, NewJob
from forge_jobs.model.processes import Pod

WAITING = frozenset({JobStatus.PENDING, JobStatus.FAILED})

SHARED = frozenset(Job.__struct_fields__) - {"metadata"}
"""Fields that a job has as the request or the claim has them."""


class Queue(Struct):
    """Reasons why a queue gives no work."""

    paused: bool = False
    cools_until: datetime | None = None


class Member(Struct):
    """A pod and the right to claim."""

    pod: Pod
    epoch: str
    until: datetime


class Row(Struct):
    """A job, and what the protocol keeps beside the job."""

    job: Job
    request: NewJob
    settled: Claim | None = None


class Records:
    """The data of one store. The verbs are in the classes below this one."""

    def __init__(self, store_id: str, clock: Clock) -> None:
        self.store_id = store_id
        self.enqueue_at_once = self.exchange_at_once = 1_000
        self.clock = clock
        self.rows: dict[JobId, Row] = {}
        self.members: dict[HostId, Member] = {}
        self.queues_by_name: defaultdict[str, Queue] = defaultdict(Queue)
        self.counted: defaultdict[tuple[str, datetime], Counter[str]] = defaultdict(Counter)

    def __getattr__(self, verb: str) -> Any:
        raise NotImplementedError(f"the store of dicts has no {verb!r}")

    async def now(self) -> datetime:
        return from_us(self.clock.time_us())

    def count(self, queue: str, what: str, now: datetime) -> None:
        self.counted[queue, now.replace(second=0, microsecond=0)][str(what)] += 1


def a_job(request: NewJob, parents: tuple[JobId, ...], now: datetime) -> Job:
    asked = {name: value for name, value in asdict(request).items() if name in SHARED}
    due_at = request.run_at or now + (request.delay or timedelta(0))
    return Job(
        **asked,
        metadata=msgspec.json.decode(request.metadata),
        status=JobStatus.BLOCKED if parents else JobStatus.PENDING,
        cause=Cause.ENQUEUED,
        due_at=due_at,
        attempt=0,
        token=to_us(now),
        crashes=0,
        snoozes=0,
        enqueued_at=now,
        claimed_at=None,
        started_at=None,
        heartbeat_at=None,
        finished_at=None,
        unique_key=request.unique.key if request.unique else None,
        hold=None,
        host_id=HostId(""),
        worker_id=WorkerId(""),
        cancel_requested=False,
        result=None,
        errors=(),
        waits_for=parents,
    )


def claim_of(job: Job) -> Claim:
    return Claim(job.queue, job.id, job.token, job.host_id)


def is_stale(job: Job, stale_after: timedelta, now: datetime) -> bool:
    if job.status is not JobStatus.IN_PROGRESS or job.heartbeat_at is None:
        return False
    return job.heartbeat_at + stale_after <= now
