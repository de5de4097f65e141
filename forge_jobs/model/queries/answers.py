"""From a query to the filter that every store answers, and from a filter to a query.

The language has more terms than the stores can answer by now. A query with such a term is refused
whole and names the term: a part that is left out would select jobs that were not meant.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from forge_jobs.errors import InvalidInput
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.queries.terms import Choice, Compared, JobQuery, Term

_MICROSECOND = timedelta(microseconds=1)
_LISTS = {"queue": "queues", "kind": "kinds", "status": "statuses", "cause": "causes", "id": "ids"}
_SINGLE = {"tag": "tag", "schedule": "schedule", "key": "unique_key"}
_WHOLE = {"status": tuple(JobStatus), "cause": tuple(Cause)}
"""Terms of which all values are known, so that those which are not excluded can be named."""

_ANSWERED = (
    "queue, kind, status, cause, tag, schedule, key, id and enqueued, and exclude statuses and "
    "causes"
)


def is_relative(query: JobQuery) -> bool:
    """Return whether the query means other jobs as time passes: ``enqueued:<1h``."""
    return any(isinstance(t, Compared) and isinstance(t.value, timedelta) for t in query.terms)


def as_filter(query: JobQuery, now: datetime) -> JobFilter:
    """Return the filter for stores that means the same jobs.

    :param now: the store's time, from which durations count back
    :raises InvalidInput: names a term that stores cannot answer yet
    """
    parts: dict[str, object] = {}
    for name, field in _LISTS.items():
        values = _among(name, query.terms)
        if values is not None:
            parts[field] = values
            if not values:
                # All statuses, or all causes, are excluded. An empty part would mean any of them.
                return JobFilter(ids=())
    for name, field in _SINGLE.items():
        text = _only(name, query.terms)
        if text is not None:
            parts[field] = text
    parts |= _enqueued(query.terms, now)
    _check_answered(query.terms)
    return JobFilter(**parts)  # type: ignore[arg-type] # fields by the tables above


def query_of(which: JobFilter) -> JobQuery:
    """Return the query that means the same jobs as the filter.

    :raises InvalidInput: a value is none of the language, or ``ids`` is empty: no text says "no job
        at all"
    """
    if which.ids == ():
        raise InvalidInput("ids", "is empty, so no job is meant", "give None or some ids")
    terms: list[Term] = []
    for name, field in (_LISTS | _SINGLE).items():
        given: tuple[str, ...] | str | None = getattr(which, field)
        if given is not None and given != ():
            terms.append(Choice(name, (given,) if isinstance(given, str) else given))
    if which.enqueued_after is not None:
        terms.append(Compared("enqueued", ">=", which.enqueued_after))
    if which.enqueued_before is not None:
        terms.append(Compared("enqueued", "<", which.enqueued_before))
    return JobQuery(tuple(terms))


def _among(name: str, terms: Iterable[Term]) -> tuple[str, ...] | None:
    """The values of which a job must have one. None where any will do."""
    found: tuple[str, ...] | None = None
    for term in terms:
        if isinstance(term, Choice) and term.name == name and not term.excluded:
            found = term.values
    for term in terms:
        if isinstance(term, Choice) and term.name == name and term.excluded:
            if name not in _WHOLE:
                raise _unanswered(name, "is excluded, which stores cannot do yet")
            left = _WHOLE[name] if found is None else found
            found = tuple(value for value in left if value not in term.values)
    return tuple(map(JobId, found)) if name == "id" and found else found


def _only(name: str, terms: Iterable[Term]) -> str | None:
    found = [term for term in terms if isinstance(term, Choice) and term.name == name]
    if any(term.excluded for term in found):
        raise _unanswered(name, "is excluded, which stores cannot do yet")
    values = [value for term in found for value in term.values]
    if len(values) > 1:
        raise _unanswered(name, "has several values, which stores cannot look for yet")
    return values[0] if values else None


def _enqueued(terms: Iterable[Term], now: datetime) -> dict[str, object]:
    """The bounds of the filter: at or after one instant, strictly before another."""
    after: list[datetime] = []
    before: list[datetime] = []
    for term in terms:
        if not isinstance(term, Compared) or term.name != "enqueued":
            continue
        try:
            is_later, at = _bound(term, now)
            (after if is_later else before).append(at)
        except OverflowError:
            fix = "give a nearer one"
            raise InvalidInput("enqueued", "is a time that no calendar has", fix) from None
    bounds: dict[str, object] = {}
    if after:
        bounds["enqueued_after"] = max(after)
    if before:
        bounds["enqueued_before"] = min(before)
    return bounds


def _bound(term: Compared, now: datetime) -> tuple[bool, datetime]:
    """Return whether jobs at or after an instant are meant, else those before, and the instant.

    Times are whole microseconds: later than one is at or after the next.
    """
    sign = term.sign
    if isinstance(term.value, timedelta):
        # A greater age is an earlier time.
        at = now - term.value
        sign = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}[sign]  # type: ignore[assignment]
    else:
        assert isinstance(term.value, datetime)
        at = term.value
    is_later = sign in {">", ">="}
    return is_later, at + _MICROSECOND if sign in {">", "<="} else at


def _check_answered(terms: Iterable[Term]) -> None:
    for term in terms:
        name = term.name
        if name not in _LISTS and name not in _SINGLE and name != "enqueued":
            raise _unanswered(name, "cannot be answered by stores yet")


def _unanswered(name: str, problem: str) -> InvalidInput:
    return InvalidInput(name, problem, f"leave it out. Stores look for {_ANSWERED}")
