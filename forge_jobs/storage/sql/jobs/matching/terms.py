"""Terms of the filter language as SQL, and the texts of jobs for terms that SQL does not check."""

import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, and_, case, func, literal, not_, or_, select, true

from forge_jobs.clock import duration_us, from_us, to_us
from forge_jobs.model.answering.filters import instant_of
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.queries.matching import Texts, is_deep, texts_match
from forge_jobs.model.queries.terms import Choice, Compared, InPayload, Sign, Term
from forge_jobs.model.unique.keys import places_of
from forge_jobs.storage.sql.base.job_rows import tag_patterns
from forge_jobs.storage.sql.base.lists import one_of
from forge_jobs.storage.sql.base.tables import jobs
from forge_jobs.storage.sql.base.transaction import Tx

_COMPARED: Mapping[Sign, Callable[[Any, Any], ColumnElement[bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
}
_COLUMNS = {
    **{name: name for name in ("queue", "kind", "status", "cause", "schedule", "id")},
    "pod": "host_id",
}
_TIMES = {"enqueued": "enqueued_at", "finished": "finished_at", "due": "run_at"}
_TURNS = (JobStatus.PENDING.value, JobStatus.FAILED.value)

_TAIL = 64 * 1024
"""The newest record of errors is within so many characters of the end of the column."""

_RECORD = '{"attempt":'
"""How each record of an error begins. Inside a text of JSON these quotes have a backslash."""

_is_long = func.length(jobs.c.errors) > _TAIL
HAS_TEXTS = (
    (jobs.c.payload != "").label("has_payload"),
    (jobs.c.errors != "[]").label("has_errors"),
)
_TEXTS = select(
    jobs.c.id,
    jobs.c.payload,
    case(
        (_is_long, func.substr(jobs.c.errors, func.length(jobs.c.errors) - _TAIL + 1)),
        else_=jobs.c.errors,
    ).label("errors"),
).where(one_of(jobs.c.id, "ids"))

AT_ONCE = 50
"""The texts of how many jobs are read at once: a payload may be as large as 1 MiB."""


class _Failure(msgspec.Struct):
    type: str
    message: str
    error_group: str = ""


_decode_failure = msgspec.json.Decoder(_Failure).decode


def with_texts(tx: Tx, terms: Sequence[Term], ids: Sequence[str]) -> set[str]:
    """Return those of the jobs whose texts match."""
    found: set[str] = set()
    for start in range(0, len(ids), AT_ONCE):
        rows = tx.execute(_TEXTS, {"ids": ids[start : start + AT_ONCE]})
        found.update(row.id for row in rows if texts_match(terms, _texts(row)))
    return found


def _texts(row: Any) -> Texts:
    start = row.errors.rfind(_RECORD)
    try:
        newest = _decode_failure(row.errors[start:].removesuffix("]"))
    except (msgspec.MsgspecError, UnicodeError):
        return Texts(row.payload, "", "")
    return Texts(row.payload, f"{newest.type}: {newest.message}", newest.error_group)


def term_conditions(terms: Sequence[Term], tx: Tx, of: Any) -> list[ColumnElement[bool]]:
    """Return a condition for each term that a job must match.

    Of a term about errors or payloads a condition that no matching job fails.

    :param of: the columns that are looked at
    """
    return [_condition(term, tx, of) for term in terms]


def _condition(term: Term, tx: Tx, of: Any) -> ColumnElement[bool]:
    if isinstance(term, Compared):
        return _compared(term, tx, of)
    if isinstance(term, InPayload):
        return _given(of, "has_payload", jobs.c.payload != "")
    if is_deep(term):
        return true() if term.excluded else _given(of, "has_errors", jobs.c.errors != "[]")
    is_one = _is_one(term, tx, of)
    return not_(is_one) if term.excluded else is_one


def _given(of: Any, name: str, otherwise: ColumnElement[bool]) -> ColumnElement[bool]:
    """A condition on a long column. A walk has it beside the other columns."""
    found: ColumnElement[bool] = of.get(name, otherwise)
    return found


def _is_one(term: Choice, tx: Tx, of: Any) -> ColumnElement[bool]:
    """The job has one of the values. Never NULL."""
    if term.name == "tag":
        patterns = (pattern for tag in term.values for pattern in tag_patterns(tag))
        return or_(*(tx.flavor.contains(of.tags, pattern) for pattern in patterns))
    if term.name == "key":
        places = [place for key in term.values for place in places_of(key)]
        return and_(of.unique_key.is_not(None), of.unique_key.in_(places))
    is_one: ColumnElement[bool] = of[_COLUMNS[term.name]].in_(term.values)
    return is_one


def _compared(term: Compared, tx: Tx, of: Any) -> ColumnElement[bool]:
    if isinstance(term.value, int):
        return _COMPARED[term.sign](of[term.name], literal(term.value))
    if term.name == "running":
        assert isinstance(term.value, timedelta)
        elapsed = literal(tx.now) - of.started_at
        is_so_long = _COMPARED[term.sign](elapsed, duration_us(term.value))
        return and_(of.status == JobStatus.IN_PROGRESS.value, is_so_long)
    bound = time_bound(term, tx, of[_TIMES[term.name]])
    if term.name == "due":
        return and_(of.status.in_(_TURNS), bound)
    return bound


def time_bound(term: Compared, tx: Tx, column: Any) -> ColumnElement[bool]:
    """Return the condition that a time makes: NULL where there is no time."""
    sign, at = term.sign, term.value
    if not isinstance(at, datetime):
        sign, at = instant_of(term, from_us(tx.now))
    return _COMPARED[sign](column, to_us(at))
