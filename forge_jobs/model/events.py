"""Timeline events: what happened when, for people. They are never counted."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from forge_jobs.model.jobs import Job


class EventKind(StrEnum):
    ENQUEUED = "enqueued"
    """Of no event: a timeline begins with it, see :func:`timeline_of`."""
    STARTED = "started"
    FINISHED = "finished"
    RETRIED = "retried"
    """The run failed, and the job runs again."""
    CANCEL_REQUESTED = "cancel_requested"
    CLAIM_LOST = "claim_lost"
    REVIVED = "revived"
    REQUEUED = "requeued"
    OVERRAN = "overran"
    """The handler went on although the job's time was up."""
    RELEASED_HELD = "released_held"
    """An operator let a job run without parents that had held it."""
    MENDED = "mended"
    """A sweep has mended what a lost write had left."""
    THROTTLED = "throttled"
    POD_STARTED = "pod_started"
    POD_STOPPED = "pod_stopped"
    POD_LOST = "pod_lost"
    LEADER = "leader"
    SCHEDULE_FIRED = "schedule_fired"
    SCHEDULE_DISABLED = "schedule_disabled"
    UNREADABLE = "unreadable"
    """Of no writer: an event that is stored and cannot be read, its detail says what of it."""


class TimelineEvent(Struct, frozen=True, kw_only=True):
    """One event. Buffered by the process it happened in, so a killed process loses its last ones.

    :param queue: "" when it concerns no queue
    :param job_id: "" when it concerns no job
    :param detail: one short line
    """

    at: datetime
    kind: EventKind
    queue: str = ""
    job_id: str = ""
    host_id: str = ""
    detail: str = ""


def timeline_of(job: Job, events: Sequence[TimelineEvent]) -> list[TimelineEvent]:
    """What happened to a job, newest first, from its enqueue on.

    The enqueue is told by the job's record: an event of its own would double what an enqueue
    writes.

    :param events: of the job, newest first
    """
    enqueued = TimelineEvent(
        at=job.enqueued_at,
        kind=EventKind.ENQUEUED,
        queue=job.queue,
        job_id=job.id,
        detail=job.kind if not job.schedule else f"{job.kind}, by schedule {job.schedule}",
    )
    return [*events, enqueued]
