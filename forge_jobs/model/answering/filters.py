"""From a query to the filter that every store answers, and from a filter to a query.

Parts that stores have an index for become fields of the filter. All others become its terms.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from msgspec import structs

from forge_jobs.errors import InvalidInput
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import TERMINAL, Cause, JobStatus
from forge_jobs.model.queries.terms import AGES, Choice, Compared, JobQuery, Sign, Term

_MICROSECOND = timedelta(microseconds=1)
_LISTS = {"queue": "queues", "kind": "kinds", "status": "statuses", "cause": "causes", "id": "ids"}
_SINGLE = {"tag": "tag", "schedule": "schedule", "key": "unique_key"}
_WHOLE = {"status": tuple(JobStatus), "cause": tuple(Cause)}
"""Terms of which all values are known, so that those which are not excluded can be named."""


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
        for term in query.terms:
            if field not in parts and isinstance(term, Choice) and _is_single(term, name):
                parts[field] = term.values[0]
    parts |= _enqueued(query.terms, now)
    parts["terms"] = _rest(query.terms, now)
    return JobFilter(**parts)  # type: ignore[arg-type] # fields by the tables above


_STATUSES: Mapping[str, frozenset[JobStatus]] = {
    "finished": TERMINAL,
    "running": frozenset({JobStatus.IN_PROGRESS}),
    "due": frozenset({JobStatus.PENDING, JobStatus.FAILED}),
}
"""Terms about a time that jobs have in some statuses only."""


def with_statuses(which: JobFilter) -> JobFilter:
    """Return the filter with the statuses that its terms leave: what has finished has ended.

    Means the same jobs. A store then walks the lists of these statuses alone.
    """
    left = set(which.statuses or JobStatus)
    for term in which.terms:
        left &= _STATUSES.get(term.name, left)
    if left == set(which.statuses or JobStatus):
        return which
    if not left:
        return structs.replace(which, ids=())
    return structs.replace(which, statuses=tuple(status for status in JobStatus if status in left))


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
    return JobQuery((*terms, *which.terms))


def _among(name: str, terms: Iterable[Term]) -> tuple[str, ...] | None:
    """The values of which a job must have one. None where any will do."""
    found: tuple[str, ...] | None = None
    for term in terms:
        if isinstance(term, Choice) and term.name == name and not term.excluded:
            found = term.values
    for term in terms:
        if name in _WHOLE and isinstance(term, Choice) and term.name == name and term.excluded:
            left = _WHOLE[name] if found is None else found
            found = tuple(value for value in left if value not in term.values)
    return tuple(map(JobId, found)) if name == "id" and found else found


def _is_single(term: Choice, name: str) -> bool:
    """Return whether the term is one value of a part of a filter that takes one."""
    return term.name == name and not term.excluded and len(term.values) == 1


def _rest(terms: Iterable[Term], now: datetime) -> tuple[Term, ...]:
    """The terms that are no fields of a filter, with instants for ages."""
    left: list[Term] = []
    taken: set[str] = set()
    for term in terms:
        name = term.name
        if isinstance(term, Choice):
            is_field = name in _LISTS and (not term.excluded or name in _WHOLE)
            is_first = name not in taken and any(_is_single(term, each) for each in _SINGLE)
            if is_field or is_first:
                taken.add(name)
                continue
        if name == "enqueued":
            continue
        left.append(_settled(term, now))
    return tuple(left)


def _settled(term: Term, now: datetime) -> Term:
    """The term with an instant for an age."""
    if not isinstance(term, Compared) or term.name not in AGES:
        return term
    try:
        sign, at = instant_of(term, now)
        return Compared(term.name, sign, at)
    except OverflowError:
        raise _beyond(term.name) from None


def _beyond(name: str) -> InvalidInput:
    return InvalidInput(name, "is a time that no calendar has", "give a nearer one")


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
            raise _beyond("enqueued") from None
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
    sign, at = instant_of(term, now)
    is_later = sign in {">", ">="}
    return is_later, at + _MICROSECOND if sign in {">", "<="} else at


_TURNED: Mapping[Sign, Sign] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def instant_of(term: Compared, now: datetime) -> tuple[Sign, datetime]:
    """Return how times compare, and with which instant.

    :param term: about a time, with an instant or an age
    :raises OverflowError: no calendar has this time
    """
    if isinstance(term.value, timedelta):
        # A greater age is an earlier time.
        return _TURNED[term.sign], now - term.value
    assert isinstance(term.value, datetime)
    return term.sign, term.value
