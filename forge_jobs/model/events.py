"""Timeline events: what happened when, for people. They are never counted."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from forge_jobs.durations import format_duration, parse_duration
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
    RESTORED = "restored"
    """An operator took a cancel back."""
    OVERRAN = "overran"
    """The handler went on although the job's time was up."""
    RELEASED_HELD = "released_held"
    """An operator let a job run without the parents that had held the job."""
    EDITED = "edited"
    """An operator changed the job while it waited. The detail names what."""
    MENDED = "mended"
    """A sweep has mended what a lost write had left."""
    THROTTLED = "throttled"
    POD_STARTED = "pod_started"
    POD_DRAINING = "pod_draining"
    """The pod was asked to stop while handlers ran."""
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


class PodNote(Struct, frozen=True, kw_only=True):
    """The detail of ``POD_STARTED`` and ``POD_STOPPED``: a pod in a line, and back.

    The record of a pod goes with the pod. So these events alone tell later who served a queue.
    """

    version: str = ""
    label: str = ""
    queues: tuple[str, ...] = ()

    def __str__(self) -> str:
        version, label = (each.replace(",", " ") for each in (self.version, self.label))
        return f"version {version}, label {label}, serves {', '.join(self.queues)}"


def pod_note(detail: str) -> PodNote:
    """Read the detail of an event. An empty note for the detail of an earlier release."""
    # No name has a comma.
    parts = detail.split(", ")
    fields = ("version ", "label ", "serves ")
    if len(parts) < len(fields) or not all(map(str.startswith, parts, fields)):
        return PodNote()
    version, label, served = (part.partition(" ")[2] for part in parts[: len(fields)])
    queues = (served, *parts[len(fields) :])
    return PodNote(version=version, label=label, queues=queues if served else ())


def grace_note(seconds: float) -> str:
    """Return the detail of ``POD_DRAINING``: how long the handlers may go on."""
    return f"grace {format_duration(timedelta(seconds=max(0, round(seconds))))}"


def grace_in(detail: str) -> timedelta | None:
    """Read the detail of ``POD_DRAINING``. None where handlers may go on until they end."""
    _, _, text = detail.partition("grace ")
    try:
        return parse_duration(text)
    except ValueError:
        return None


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
