"""Timeline events: what happened when, for people. They are never counted."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class EventKind(StrEnum):
    STARTED = "started"
    FINISHED = "finished"
    CANCEL_REQUESTED = "cancel_requested"
    CLAIM_LOST = "claim_lost"
    REVIVED = "revived"
    REQUEUED = "requeued"
    THROTTLED = "throttled"
    POD_STARTED = "pod_started"
    POD_STOPPED = "pod_stopped"
    POD_LOST = "pod_lost"
    LEADER = "leader"
    SCHEDULE_FIRED = "schedule_fired"
    SCHEDULE_DISABLED = "schedule_disabled"


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
