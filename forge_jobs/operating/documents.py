"""Documents: what ``--json`` prints and the HTTP API answers, from records."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec import Struct

from forge_jobs.model.actions import Action, ActionPart, ActionState
from forge_jobs.model.events import TimelineEvent
from forge_jobs.model.filters import Refusal
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Job
from forge_jobs.model.processes import PodState
from forge_jobs.model.progress import Progress
from forge_jobs.model.queues import QueueCounts, QueueState, RateLimitState
from forge_jobs.model.schedules import Schedule, ScheduleSpec
from forge_jobs.operating.findings import Finding
from forge_jobs.operating.latencies import Percentiles, QueueStats
from forge_jobs.policy.explanations import Reason
from forge_jobs.policy.judgement.problems.problem import Problem

R = TypeVar("R", bound=Struct)


def document(value: object) -> bytes:
    """Return the JSON document of a value, on one line."""
    return msgspec.json.format(msgspec.json.encode(plain(value)), indent=-1)


def plain(value: object) -> Any:
    """``value`` in JSON types: records become objects, instants ISO texts in UTC, durations
    seconds, sets sorted lists.

    Fields that a record names in ``JSON_TEXTS`` become the values that they say, byte for byte.
    """
    if isinstance(value, Struct):
        fields = {name: plain(getattr(value, name)) for name in value.__struct_fields__}
        for name in getattr(value, "JSON_TEXTS", ()):
            fields[name] = _said(fields[name])
        tag = value.__struct_config__.tag
        return fields if tag is None else {"type": tag, **fields}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def _said(text: str | None) -> Any:
    """The JSON of a text. What is no JSON stays a text."""
    if not text:
        return None
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(text, type=msgspec.Raw)
    return text


def widened(form: type[R], record: Struct, **more: Any) -> R:
    """Return the record in a form that has further fields."""
    return form(**{name: getattr(record, name) for name in record.__struct_fields__} | more)


class JobView(Job, frozen=True, kw_only=True):
    """A job as people see one: secrets hidden, with progress and timeline.

    :param payload: JSON text. In the document the value. ``result`` and ``trace`` likewise
    :param events: of the job, newest first, down to the enqueue
    """

    JSON_TEXTS: ClassVar[tuple[str, ...]] = ("payload", "result", "trace")

    progress: Progress | None = None
    events: tuple[TimelineEvent, ...] = ()


class JobResult(Struct, frozen=True, kw_only=True):
    """The result of a job.

    :param result: JSON text, None when there is none. In the document the value
    """

    JSON_TEXTS: ClassVar[tuple[str, ...]] = ("result",)

    job_id: JobId
    status: str
    result: str | None


class JobExplanation(Struct, frozen=True, kw_only=True):
    """Why a job does not run, or how it runs. Fields as of ``Explanation``."""

    job_id: JobId
    reason: Reason
    text: str
    since: datetime | None = None
    forecast: datetime | None = None
    help: str = ""
    blocked_by: tuple[str, ...] = ()
    held_by: tuple[str, ...] = ()
    ahead: int | None = None
    starts_after: datetime | None = None
    starts_before: datetime | None = None
    rests_on: str = ""


class Timeline(Struct, frozen=True, kw_only=True):
    """The events of a job, newest first, down to the enqueue."""

    job_id: JobId
    events: tuple[TimelineEvent, ...]


class Changed(Struct, kw_only=True):
    """The sum of the batches of a verb.

    :param changed: jobs that are now as was asked for
    :param requested: running jobs whose owner was asked to stop (cancel only)
    :param refused: jobs left as they were, and why
    """

    changed: list[JobId] = []
    requested: list[JobId] = []
    refused: dict[JobId, Refusal] = {}


class QueueView(QueueState, frozen=True, kw_only=True):
    """A queue with jobs, slots, and how long jobs took in the last hour.

    :param granted: slots of all pods
    :param pods: how many live pods serve the queue
    :param unserved: jobs wait and no live pod serves the queue
    :param standing: how the queue stands, in words
    """

    counts: QueueCounts
    granted: int
    pods: int
    unserved: bool
    standing: str
    run: Percentiles
    total: Percentiles


class SpecView(ScheduleSpec, frozen=True, kw_only=True):
    """The definition of a schedule. In the document payload and metadata are values."""

    JSON_TEXTS: ClassVar[tuple[str, ...]] = ("payload", "metadata")


class ScheduleView(Schedule, frozen=True, kw_only=True):
    """A schedule, and how the schedule stands, in words."""

    spec: SpecView
    standing: str


class PodView(PodState, frozen=True, kw_only=True):
    """A pod, and how the pod stands: ``live``, ``draining`` or ``lost``."""

    standing: str


class Queues(Struct, frozen=True):
    """All queues, by name."""

    queues: tuple[QueueView, ...]


class Stats(Struct, frozen=True):
    """How recent attempts ended and how long they took, per queue."""

    queues: tuple[QueueStats, ...]


class Schedules(Struct, frozen=True):
    """All schedules by name, deleted ones too."""

    schedules: tuple[ScheduleView, ...]


class Fires(Struct, frozen=True, kw_only=True):
    """The next occurrences of a schedule, soonest first. None when the schedule stands still."""

    name: str
    timezone: str
    fires: tuple[datetime, ...]


class Pods(Struct, frozen=True):
    """All pods that the store knows."""

    pods: tuple[PodView, ...]


class Limits(Struct, frozen=True):
    """All rate limits, by name."""

    rate_limits: tuple[RateLimitState, ...]


class Health(Struct, frozen=True, kw_only=True):
    """The findings of an examination of the store.

    :param ok: False: something must be put right
    """

    ok: bool
    findings: tuple[Finding, ...]


class ActionView(Action, frozen=True, kw_only=True):
    """An action, how far it has come, and the sums over its parts."""

    JSON_TEXTS: ClassVar[tuple[str, ...]] = ("before", "after")

    state: ActionState
    changed: int
    requested: int
    refused: int
    parts: tuple[ActionPart, ...]
    silent: tuple[str, ...]


class Actions(Struct, frozen=True, kw_only=True):
    """A page of actions, the newest first.

    :param cursor: pass it to get the next page. None on the last page
    """

    actions: tuple[ActionView, ...]
    cursor: str | None


class ActionJobs(Struct, frozen=True, kw_only=True):
    """A page of the jobs that an action has changed or asked for, by id."""

    action_id: str
    job_ids: tuple[JobId, ...]
    cursor: str | None


class Problems(Struct, frozen=True, kw_only=True):
    """Everything that is wrong now, the worst first.

    :param ok: False: a problem is critical
    """

    ok: bool
    problems: tuple[Problem, ...]


class Deleted(Struct, frozen=True, kw_only=True):
    """A deleted record, and what went along.

    :param jobs: how many jobs went with a queue
    :param schedules: schedules that make the deleted queue again when they fire
    """

    name: str
    jobs: int = 0
    schedules: tuple[str, ...] = ()


class Me(Struct, frozen=True, kw_only=True):
    """The actor, and the rights of the actor.

    :param actions: names of the actions that are allowed. ``*`` stands for all
    :param queues: names of the only queues that are open to the actor. None: all are
    """

    name: str
    surface: str
    read: bool
    actions: tuple[str, ...]
    queues: tuple[str, ...] | None
    payloads: bool
