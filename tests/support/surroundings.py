"""A job in surroundings where only what a test names stands in the way."""

from datetime import UTC, datetime, timedelta
from typing import Any

from forge_jobs.model.ids import HostId, JobId, WorkerId, new_job_id
from forge_jobs.model.jobs import Cause, ErrorRecord, Job, JobStatus
from forge_jobs.model.processes import Allocation, Leadership, Pod, PodState, Slots, WorkerState
from forge_jobs.model.queues import QueueSettings, QueueState
from forge_jobs.policy.admission import Explanation, explain

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
ZERO = timedelta(0)
POD, OTHER = HostId("POD-A"), HostId("POD-B")
NOT_READ: Any = object()


def a_job(**overrides: Any) -> Job:
    fields: dict[str, Any] = {
        "id": new_job_id(),
        "queue": "gh",
        "kind": "gh.sync",
        "payload": "{}",
        "status": JobStatus.PENDING,
        "cause": Cause.ENQUEUED,
        "priority": 0,
        "attempt": 0,
        "max_attempts": 5,
        "token": 0,
        "crashes": 0,
        "snoozes": 0,
        "enqueued_at": NOW - 2 * MINUTE,
        "due_at": NOW - MINUTE,
        "claimed_at": None,
        "started_at": None,
        "heartbeat_at": None,
        "finished_at": None,
        "expires_at": None,
        "timeout": None,
        "unique_key": None,
        "hold": None,
        "host_id": HostId(""),
        "worker_id": WorkerId(""),
        "cancel_requested": False,
        "tags": (),
        "metadata": {},
        "trace": "",
        "schedule": "",
        "keep_result": True,
        "result": None,
        "errors": (),
        "waits_for": (),
    }
    return Job(**(fields | overrides))


def a_running_job(**overrides: Any) -> Job:
    fields: dict[str, Any] = {
        "status": JobStatus.IN_PROGRESS,
        "attempt": 2,
        "host_id": POD,
        "worker_id": WorkerId("WORKER"),
        "claimed_at": NOW - 5 * SECOND,
        "started_at": NOW - 4 * SECOND,
        "heartbeat_at": NOW - SECOND,
    }
    return a_job(**(fields | overrides))


def a_queue(**overrides: Any) -> QueueState:
    fields: dict[str, Any] = {
        "name": "gh",
        "settings": QueueSettings(max_workers=2),
        "overridden": frozenset(),
        "paused": False,
        "cooldown_remaining": ZERO,
        "cooldown_level": 0,
        "cooldown_ended_for": None,
    }
    return QueueState(**(fields | overrides))


def a_pod(host_id: HostId = POD, **overrides: Any) -> PodState:
    about = Pod(
        host_id=host_id,
        label=overrides.pop("label", ""),
        queues=overrides.pop("queues", ("gh",)),
        kinds=overrides.pop("kinds", ("gh.sync",)),
        version="",
        process_id=1,
        concurrency=overrides.pop("concurrency", None),
    )
    fields: dict[str, Any] = {
        "pod": about,
        "started_at": NOW - MINUTE,
        "last_beat_at": NOW - SECOND,
        "lease_remaining": 14 * SECOND,
        "draining": False,
        "slots": {"gh": Slots(2, 2)},
        "in_progress": {},
        "gauges": None,
    }
    return PodState(**(fields | overrides))


def an_allocation(**grants: int) -> Allocation:
    return Allocation(
        queue="gh",
        version=1,
        max_workers=2,
        pods={HostId(pod.replace("_", "-")): Slots(grant, grant) for pod, grant in grants.items()},
        draining=frozenset(),
    )


LEADER = Leadership(host_id=POD, term=1, remaining=8 * SECOND, fleet_version="1")


def why(
    job: Job,
    *,
    queue: QueueState | None = NOT_READ,
    allocation: Allocation | None = None,
    pods: list[PodState] | None = None,
    leader: Leadership | None = LEADER,
    parents: dict[JobId, JobStatus] | None = None,
    workers: tuple[WorkerState, ...] = (),
) -> Explanation:
    """Explain in surroundings where nothing stands in the way but what is given."""
    return explain(
        job,
        a_queue() if queue is NOT_READ else queue,
        allocation,
        [a_pod()] if pods is None else pods,
        leader,
        NOW,
        parents=parents,
        workers=workers,
    )


def a_worker(host_id: HostId = POD, **overrides: Any) -> WorkerState:
    fields: dict[str, Any] = {
        "worker_id": WorkerId("WORKER"),
        "host_id": host_id,
        "queue": "gh",
        "job_id": JobId("JOB"),
        "kind": "gh.sync",
        "started_at": NOW - MINUTE,
    }
    return WorkerState(**(fields | overrides))


def an_error(**overrides: Any) -> ErrorRecord:
    fields: dict[str, Any] = {
        "attempt": 1,
        "cause": Cause.FAILED,
        "type": "ValueError",
        "message": "no such\nrepo",
        "at": NOW - 10 * SECOND,
    }
    return ErrorRecord(**(fields | overrides))
