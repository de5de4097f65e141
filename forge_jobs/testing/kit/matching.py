"""Finds stored jobs by what a test expects, and says what is there where none fits."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from forge_jobs.durations import format_duration
from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.signatures import to_plain
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import Job, JobStatus
from forge_jobs.storage.protocols import JobStore

_LISTED = 20
_PAGE = 1_000
_WIDTH = 300
_FIELDS = frozenset(
    {
        "queue",
        "priority",
        "max_attempts",
        "timeout",
        "tags",
        "metadata",
        "unique_key",
        "schedule",
        "keep_result",
        "expires_at",
        "attempt",
        "cause",
    }
)
_WITHIN = timedelta(seconds=1)


class Expected(Struct, frozen=True, kw_only=True):
    """The jobs that a test expects.

    :param payload: the arguments that must be there. Others may be there too
    :param fields: attributes of :class:`~forge_jobs.Job` by name
    :param due_in: how long until the job is due, give or take a second
    """

    kind: str | None = None
    payload: Mapping[str, Any] | None = None
    status: JobStatus | None = None
    due_in: timedelta | None = None
    fields: Mapping[str, Any] = {}

    def problems(self, job: Job, now: datetime) -> Iterator[str]:
        """Yield why the job is not the expected one, a text for each difference."""
        if self.status is not None and job.status is not self.status:
            yield f"status is {job.status}, not {self.status}"
        for name, wanted in self.fields.items():
            found = getattr(job, name)
            if found != wanted:
                yield f"{name} is {_short(found)}, not {_short(wanted)}"
        if self.due_in is not None and abs(job.due_at - now - self.due_in) > _WITHIN:
            yield f"due in {_until(job.due_at, now)}, not in {format_duration(self.due_in)}"
        if self.payload is not None:
            yield from _differences(self.payload, _decoded(job.payload), "payload")

    def __str__(self) -> str:
        parts = [] if self.kind is None else [f"kind {self.kind!r}"]
        if self.payload is not None:
            parts.append(f"payload {_short(self.payload)}")
        if self.status is not None:
            parts.append(f"status {self.status}")
        if self.due_in is not None:
            parts.append(f"due in {format_duration(self.due_in)}")
        parts += [f"{name} {_short(value)}" for name, value in self.fields.items()]
        return ", ".join(parts) or "anything"


def expected(
    what: Handler[..., Any] | str | None,
    payload: Mapping[str, Any] | None,
    status: JobStatus | str | None,
    due_in: timedelta | float | None,
    fields: Mapping[str, Any],
) -> Expected:
    """Return what a test asks for, checked.

    :raises InvalidInput: a name or value is wrong
    """
    if what is not None and not isinstance(what, Handler | str):
        raise InvalidInput("kind", f"is {a_type(what)}", "give a handler or the name of a kind")
    if payload is not None and not isinstance(payload, Mapping):
        raise InvalidInput("payload", f"is {a_type(payload)}", "give the arguments by name")
    for name in fields:
        if name not in _FIELDS:
            known = ", ".join(sorted(_FIELDS | {"due_in", "payload", "status"}))
            raise InvalidInput(name, "is not known of a job", f"give any of {known}")
    if due_in is not None and not isinstance(due_in, timedelta):
        due_in = timedelta(seconds=due_in)
    if status is not None:
        try:
            status = JobStatus(status)
        except ValueError:
            fix = f"give one of {', '.join(JobStatus)}"
            raise InvalidInput("status", f"is {status!r}", fix) from None
    return Expected(
        kind=what.kind if isinstance(what, Handler) else what,
        payload=payload,
        status=status,
        due_in=due_in,
        fields=dict(fields),
    )


async def find(
    jobs: JobStore, wanted: Expected, now: datetime, read: Callable[[Job], Job]
) -> tuple[list[Job], list[Job]]:
    """Return the jobs that fit, and all others of the store, oldest first.

    :param read: decrypts
    """
    stored = [read(job) for job in await _all(jobs)]
    fitting: list[Job] = []
    others: list[Job] = []
    for job in stored:
        of_kind = wanted.kind is None or job.kind == wanted.kind
        fits = of_kind and next(wanted.problems(job, now), None) is None
        (fitting if fits else others).append(job)
    return fitting, others


def missing(
    wanted: Expected,
    count: int | None,
    fitting: Sequence[Job],
    others: Sequence[Job],
    now: datetime,
) -> str:
    """Return the text of a failed assertion."""
    amount = "a job" if count is None else "no job" if count == 0 else _jobs(count)
    found = "none" if not fitting else str(len(fitting))
    lines = [f"expected {amount} with {wanted}; found {found}."]
    if fitting:
        lines += ["These fit:", *_listed(fitting, lambda job: _line(job, now))]
    near = [job for job in others if job.kind == wanted.kind]
    far = [job for job in others if job.kind != wanted.kind]
    if near and count != 0:
        of_kind = [f"Of kind {wanted.kind!r}, but different:"]
        lines += [*of_kind, *_listed(near, lambda job: _unlike(job, wanted, now))]
        near = []
    rest = sorted([*near, *far], key=lambda job: job.id)
    if rest and count != 0:
        lines += ["Of other kinds:", *_listed(rest, lambda job: _line(job, now))]
    if not fitting and not others:
        lines.append(
            "No job is stored at all. Does the program enqueue into the store of the fixture?"
        )
    return "\n".join(lines)


async def _all(jobs: JobStore) -> list[Job]:
    ids, cursor = [], None
    while True:
        page = await jobs.list(JobFilter(), cursor=cursor, limit=_PAGE)
        ids += [summary.id for summary in page.jobs]
        cursor = page.cursor
        if cursor is None:
            break
    found = await jobs.get(ids)
    return [found[job_id] for job_id in reversed(ids) if job_id in found]


def _listed(jobs: Sequence[Job], line: Callable[[Job], str]) -> Iterator[str]:
    yield from (f"  {line(job)}" for job in jobs[:_LISTED])
    if len(jobs) > _LISTED:
        yield f"  and {len(jobs) - _LISTED} more"


def _line(job: Job, now: datetime) -> str:
    due = f", due in {_until(job.due_at, now)}" if job.due_at > now and _waits(job) else ""
    return f"{job.kind} {_short(_decoded(job.payload))} in queue {job.queue}: {job.status}{due}"


def _unlike(job: Job, wanted: Expected, now: datetime) -> str:
    return f"{_line(job, now)} ({'; '.join(wanted.problems(job, now))})"


def _waits(job: Job) -> bool:
    return job.status in (JobStatus.PENDING, JobStatus.FAILED)


def _until(due_at: datetime, now: datetime) -> str:
    seconds = max(round((due_at - now).total_seconds()), 0)
    return format_duration(timedelta(seconds=seconds))


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def _decoded(text: str) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text


def _differences(wanted: Any, found: Any, where: str) -> Iterator[str]:
    """Yield where ``found`` lacks what ``wanted`` has. Of mappings only the wanted keys count."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key, value in wanted.items():
            if key not in found:
                yield f"{where} has no {key!r}"
            else:
                yield from _differences(value, found[key], f"{where}[{key!r}]")
    elif wanted != found and _plain(wanted) != found:
        yield f"{where} is {_short(found)}, not {_short(wanted)}"


def _plain(value: Any) -> Any:
    """Return a value as the payload of a job has it: a dataclass, a date or a UUID as JSON."""
    try:
        return json.loads(msgspec.json.encode(to_plain(value)))
    except (TypeError, ValueError, RecursionError):
        return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}..."
