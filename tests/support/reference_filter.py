"""A plain filter in Python, with which stores are compared."""

import json
import operator
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from forge_jobs.model.jobs import Job, JobStatus
from forge_jobs.model.queries.terms import Choice, Compared, InPayload, JobQuery, Term

_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
}
_IN_LINE = {JobStatus.PENDING, JobStatus.FAILED}


def is_meant(job: Job, query: JobQuery, now: datetime) -> bool:
    """Return whether the job matches every term."""
    return all(_matches(job, term, now) for term in query.terms)


def _matches(job: Job, term: Term, now: datetime) -> bool:
    if isinstance(term, Compared):
        return _compares(job, term, now)
    if isinstance(term, InPayload):
        if not job.payload or job.payload.startswith('{"forge_jobs.encrypted"'):
            return False
        return _in_payload(job.payload, term) != term.excluded
    newest = job.errors[-1] if job.errors else None
    if term.name == "group":
        group = newest.error_group if newest else ""
        return (group in term.values) != term.excluded
    if term.name == "error":
        text = f"{newest.type}: {newest.message}".casefold() if newest else ""
        return any(value.casefold() in text for value in term.values) != term.excluded
    return any(value in _values(job, term) for value in term.values) != term.excluded


def _values(job: Job, term: Choice) -> tuple[str | None, ...]:
    return {
        "queue": (job.queue,),
        "kind": (job.kind,),
        "status": (job.status,),
        "cause": (job.cause,),
        "tag": job.tags,
        "schedule": (job.schedule,),
        "pod": (job.host_id,),
        "key": (job.unique_key,),
        "id": (job.id,),
    }[term.name]


def _compares(job: Job, term: Compared, now: datetime) -> bool:
    sign = _SIGNS[term.sign]
    if isinstance(term.value, int):
        return sign(getattr(job, term.name), term.value)
    if term.name == "running":
        if job.status is not JobStatus.IN_PROGRESS or job.started_at is None:
            return False
        return sign(now - job.started_at, term.value)
    at = {"enqueued": job.enqueued_at, "finished": job.finished_at, "due": job.due_at}[term.name]
    if at is None or (term.name == "due" and job.status not in _IN_LINE):
        return False
    return sign(now - at, term.value) if isinstance(term.value, timedelta) else sign(at, term.value)


def _in_payload(payload: str, term: InPayload) -> bool:
    value = json.loads(payload)
    for step in term.path:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return False
    if isinstance(value, dict | list):
        return False
    wanted = map(json.loads, term.values)
    return any(type(each) is type(value) and each == value for each in wanted)
