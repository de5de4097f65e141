"""The life of a job as states, computed from the record, the errors and the events."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Literal

from msgspec import Struct, structs

from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.jobs import TERMINAL, Cause, ErrorRecord, Job, JobStatus

Stage = Literal[
    "blocked", "scheduled", "waiting", "running", "retrying", "done", "dead", "cancelled"
]
"""The state of a job in a part of its life. ``retrying``: waits after a failure. ``scheduled``:
waits for its time."""

_CLOSE = timedelta(seconds=5)
"""An event of a pod and the record of the same end are no further apart."""

_ENDS = frozenset({EventKind.FINISHED, EventKind.RETRIED, EventKind.THROTTLED, EventKind.REVIVED})
_DEADLY = frozenset({Cause.FAILED, Cause.TIMED_OUT, Cause.REJECTED, Cause.CRASHED})
_RETURNS = frozenset({EventKind.REQUEUED, EventKind.RESTORED})
_FAILED = frozenset({Cause.FAILED, Cause.TIMED_OUT, Cause.CRASHED})


class Span(Struct, frozen=True, kw_only=True):
    """A part of the life of a job in one state.

    :param until: None for the present state, and for the last one of a job that has ended
    :param attempt: of a run, 0 where that is not known
    :param host_id: the pod of a run, "" where that is not known
    :param cause: how a run ended
    """

    stage: Stage
    at: datetime
    until: datetime | None = None
    attempt: int = 0
    host_id: str = ""
    cause: str = ""

    @property
    def length(self) -> timedelta | None:
        """None while the state lasts."""
        return None if self.until is None else self.until - self.at


class _Run(Struct):
    """A run of the handler, as far as is known."""

    start: datetime
    end: datetime | None = None
    attempt: int = 0
    host_id: str = ""
    cause: str = ""
    is_noted: bool = False


def spans_of(job: Job, events: Sequence[TimelineEvent]) -> tuple[Span, ...]:
    """Return the states of a job from the enqueue on, without gaps, oldest first.

    Events may be missing, because a process that is killed loses the last ones: records of errors
    have the end of an attempt, and how long the attempt took. A run of which nothing is known is
    part of the state around.

    :param events: of the job, in any order
    """
    known = sorted(events, key=lambda event: event.at)
    runs = _runs(job, known)
    found: list[Span] = list(_before(job, runs))
    for run, after in zip_longest(runs, runs[1:]):
        found.append(
            Span(
                stage="running",
                at=run.start,
                until=run.end,
                attempt=run.attempt,
                host_id=run.host_id,
                cause=run.cause,
            )
        )
        if run.end is not None:
            found += _between(job, run, after, known)
    return tuple(_joined(found))


def stage_at(spans: Sequence[Span], at: datetime) -> Span | None:
    """Return the state at an instant. None before the enqueue."""
    return next((span for span in reversed(spans) if span.at <= at), None)


def _runs(job: Job, events: Iterable[TimelineEvent]) -> list[_Run]:
    runs: list[_Run] = []
    for event in events:
        last = runs[-1] if runs else None
        is_open = last is not None and last.end is None
        if event.kind is EventKind.STARTED:
            if last is not None and is_open:
                last.end = event.at
            runs.append(_Run(event.at, host_id=event.host_id))
        elif event.kind in _ENDS and last is not None and is_open:
            last.end = event.at
            last.cause = Cause.CRASHED if event.kind is EventKind.REVIVED else _cause(event.detail)
    for error in job.errors:
        _note(runs, error)
    _note_last(runs, job)
    runs.sort(key=lambda run: run.start)
    return runs


def _cause(detail: str) -> str:
    return detail.partition(";")[0]


def _note(runs: list[_Run], error: ErrorRecord) -> None:
    """Add what the record of an error says of its run."""
    if error.at is None:
        return
    at = error.at
    start = None if error.ran_for is None else at - error.ran_for
    near = [
        (abs((run.end or at) - at), run)
        for run in runs
        if not run.is_noted and run.start <= at + _CLOSE and abs((run.end or at) - at) <= _CLOSE
    ]
    if near:
        _, run = min(near, key=lambda pair: pair[0])
    else:
        run = _Run(at, host_id=error.host_id)
        runs.append(run)
    run.start, run.end = min(start or run.start, at), at
    run.attempt, run.cause, run.is_noted = error.attempt, error.cause.value, True
    run.host_id = run.host_id or error.host_id


def _note_last(runs: list[_Run], job: Job) -> None:
    """Add what the record of the job says of the last run."""
    begun = job.started_at
    if job.status is JobStatus.IN_PROGRESS:
        last = runs[-1] if runs and runs[-1].end is None else None
        if last is None and begun is not None:
            runs.append(_Run(begun, attempt=job.attempt, host_id=job.host_id))
        elif last is not None:
            last.attempt, last.host_id = job.attempt, job.host_id
        return
    if job.status is JobStatus.DONE and job.finished_at is not None:
        late = max(runs, key=lambda run: run.start, default=None)
        if late is None or (late.end is not None and late.end < job.finished_at - _CLOSE):
            start = min(begun or job.claimed_at or job.finished_at, job.finished_at)
            late = _Run(start)
            runs.append(late)
        late.end, late.attempt = job.finished_at, job.attempt
        late.start = min(late.start, job.finished_at)
        late.cause, late.host_id = Cause.SUCCEEDED, job.host_id
    for run in runs:
        if run.end is None:
            run.end = max(run.start, job.finished_at or job.heartbeat_at or run.start)


def _before(job: Job, runs: Sequence[_Run]) -> Iterator[Span]:
    """The states before the first run."""
    until = runs[0].start if runs else None
    if job.status is JobStatus.BLOCKED and not runs:
        yield Span(stage="blocked", at=job.enqueued_at)
        return
    end = until or job.finished_at
    at, due_at = job.enqueued_at, job.due_at
    if not runs and due_at > at and job.status not in (JobStatus.CANCELLED, JobStatus.DEAD):
        stage: Stage = "blocked" if job.cause is Cause.PARENTS_SETTLED else "scheduled"
        yield Span(stage=stage, at=at, until=due_at)
        at = due_at
    yield Span(stage="waiting", at=at, until=end)
    if until is None and job.finished_at is not None:
        yield Span(stage=_stage(job.status), at=job.finished_at)


def _between(
    job: Job, run: _Run, after: _Run | None, events: Sequence[TimelineEvent]
) -> Iterator[Span]:
    """The states between a run that has ended and the next one, or the present."""
    assert run.end is not None
    until = after.start if after is not None else None
    again = [
        event.at
        for event in events
        if event.kind in _RETURNS and event.at >= run.end and (until is None or event.at <= until)
    ]
    at = run.end
    if again:
        yield Span(stage="dead" if run.cause in _DEADLY else "cancelled", at=at, until=again[-1])
        yield from _waits(job, "waiting", again[-1], until)
        return
    yield from _waits(job, "retrying" if run.cause in _FAILED else "waiting", at, until)


def _waits(job: Job, stage: Stage, at: datetime, until: datetime | None) -> Iterator[Span]:
    if until is not None or job.status not in TERMINAL:
        yield Span(stage=stage, at=at, until=until)
        return
    finished = max(job.finished_at or at, at)
    if finished - at > _CLOSE:
        yield Span(stage=stage, at=at, until=finished)
        at = finished
    yield Span(stage=_stage(job.status), at=at)


def _stage(status: JobStatus) -> Stage:
    if status is JobStatus.DONE:
        return "done"
    return "dead" if status is JobStatus.DEAD else "cancelled"


def _joined(spans: Iterable[Span]) -> Iterator[Span]:
    """The spans in order, each up to the next, none of them empty but runs."""
    kept: list[Span] = []
    for span in spans:
        if kept:
            at = max(span.at, kept[-1].at)
            last = structs.replace(kept.pop(), until=at)
            if last.at < at or last.stage == "running":
                kept.append(last)
            kept.append(structs.replace(span, at=at))
        else:
            kept.append(span)
    if kept:
        kept[-1] = structs.replace(kept[-1], until=None)
    return iter(kept)
