"""Timeline events: what happened when, for people. They are never counted."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from forge_jobs.model.jobs import Job


class EventKind(StrEnum):
    ENQUEUED = "enqueued"
    """Of no event: the first line of a timeline, see :func:`timeline_of`."""
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
    """An operator let a job run without the parents that had held the job."""
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
    """Of no writer: stands for a stored event that cannot be read. The detail says why."""


class TimelineEvent(Struct, frozen=True, kw_only=True):
    """A timeline event. The process buffers its events, so a killed process loses the last ones.

    :param queue: "" when the event concerns no queue
    :param job_id: "" when the event concerns no job
    :param detail: one short line
    """

    at: datetime
    kind: EventKind
    queue: str = ""
    job_id: str = ""
    host_id: str = ""
    detail: str = ""


def timeline_of(job: Job, events: Sequence[TimelineEvent]) -> list[TimelineEvent]:
    """The events of a job, newest first, down to the enqueue.

    The job's record tells of the enqueue: an event of its own would double the writes of an
    enqueue.

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
