"""Records without what people must not read, and without what an actor may not."""

from typing import overload

from msgspec import structs

from forge_jobs.model.edges import STEP, WORKFLOW
from forge_jobs.model.events import TimelineEvent
from forge_jobs.model.filters import JobSummary
from forge_jobs.model.jobs import Job
from forge_jobs.model.progress import JobState
from forge_jobs.operating.redaction import NO_REDACTION, Redaction, clean_job
from forge_jobs.privacy.secrets import HIDDEN, ORIGIN, SECRETS, readable

OURS = frozenset({ORIGIN, SECRETS, STEP, WORKFLOW})
"""Keys of metadata that are no words of the user."""

_HIDDEN_JSON = f'"{HIDDEN}"'


def shown(job: Job, redaction: Redaction = NO_REDACTION) -> Job:
    """The job without what people must not read: secrets, hidden fields, and encrypted texts."""
    result = job.result
    metadata = {key: text for key, text in job.metadata.items() if key not in OURS}
    if redaction:
        hidden = [key for key in metadata if redaction.hides((key,))]
        metadata |= dict.fromkeys(hidden, HIDDEN)
    shown_job = structs.replace(
        job,
        payload=readable(job.payload, redaction.marks(job.payload, job.metadata)),
        result=None if result is None else readable(result, redaction.marks(result, {})),
        metadata=metadata,
    )
    return clean_job(shown_job, redaction.texts(job)) if redaction else shown_job


def hide_texts(job: Job) -> Job:
    """The job for an actor without the right to payloads."""
    return structs.replace(
        job,
        payload=_HIDDEN_JSON,
        result=None if job.result is None else _HIDDEN_JSON,
        metadata=dict.fromkeys(job.metadata, HIDDEN),
        trace="",
        errors=tuple(structs.replace(error, message=HIDDEN, traceback="") for error in job.errors),
    )


def hide_line(job: JobSummary) -> JobSummary:
    """The line without the message of the error."""
    return structs.replace(job, last_error=job.last_error.partition(":")[0])


def hide_timeline(events: tuple[TimelineEvent, ...]) -> tuple[TimelineEvent, ...]:
    """The events without their details, which may quote errors."""
    return tuple(structs.replace(event, detail="") for event in events)


@overload
def hide_state(state: JobState) -> JobState: ...
@overload
def hide_state(state: None) -> None: ...
@overload
def hide_state(state: JobState | None) -> JobState | None: ...
def hide_state(state: JobState | None) -> JobState | None:
    """The state without the words of the handler."""
    if state is None or state.progress is None:
        return state
    return structs.replace(state, progress=structs.replace(state.progress, message=""))
