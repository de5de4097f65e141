"""Documents of jobs."""

from datetime import datetime
from typing import ClassVar

from msgspec import Struct

from forge_jobs.model.edges import Kin
from forge_jobs.model.events import TimelineEvent
from forge_jobs.model.filters import Refusal
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Job
from forge_jobs.model.progress import Progress
from forge_jobs.policy.explanations import Explanation
from forge_jobs.policy.timelines import Span


class JobView(Job, frozen=True, kw_only=True):
    """A job as people see one: secrets hidden, with progress and timeline.

    :param payload: JSON text. In the document the value. ``result`` and ``trace`` likewise
    :param events: of the job, newest first, down to the enqueue
    :param version: another one after each claim and each edit. An edit may name the one it has seen
    :param is_hidden: the job has secrets or fields that ``redact=`` names, shown as ``***``
    """

    JSON_TEXTS: ClassVar[tuple[str, ...]] = ("payload", "result", "trace")

    progress: Progress | None = None
    events: tuple[TimelineEvent, ...] = ()
    version: str = ""
    is_hidden: bool = False


class RevealedJob(Job, frozen=True, kw_only=True):
    """A job with its secrets.

    :param action_id: of the record that says who has seen them
    """

    JSON_TEXTS: ClassVar[tuple[str, ...]] = ("payload", "result", "trace")

    action_id: str


class JobResult(Struct, frozen=True, kw_only=True):
    """The result of a job.

    :param result: JSON text, None when there is none. In the document the value
    """

    JSON_TEXTS: ClassVar[tuple[str, ...]] = ("result",)

    job_id: JobId
    status: str
    result: str | None


class JobExplanation(Explanation, frozen=True, kw_only=True):
    """Why a job does not run, or how it runs."""

    job_id: JobId


class JobKin(Kin, frozen=True, kw_only=True):
    """The jobs before and after a job."""

    job_id: JobId


class JobDeed(Struct, frozen=True, kw_only=True):
    """An action of an operator that named the job.

    :param action_id: of the record
    :param verb: the operation, as ``edit_job``
    """

    at: datetime
    action_id: str
    actor: str
    verb: str
    reason: str = ""


class Timeline(Struct, frozen=True, kw_only=True):
    """The life of a job.

    :param events: newest first, down to the enqueue
    :param spans: the states from the enqueue on, oldest first, without gaps
    :param deeds: of operators since the enqueue, oldest first. Of the newest 1,000 actions
    :param asked: the state at the instant that was asked for. None before the enqueue
    """

    job_id: JobId
    events: tuple[TimelineEvent, ...]
    spans: tuple[Span, ...] = ()
    deeds: tuple[JobDeed, ...] = ()
    asked: Span | None = None


class Changed(Struct, kw_only=True):
    """The sum of the batches of a verb.

    :param changed: jobs that are now as was asked for
    :param requested: running jobs whose owner was asked to stop (cancel only)
    :param refused: jobs left as they were, and why
    """

    changed: list[JobId] = []
    requested: list[JobId] = []
    refused: dict[JobId, Refusal] = {}
