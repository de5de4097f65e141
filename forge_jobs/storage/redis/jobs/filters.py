"""The jobs that a filter means, in the order of their ids or of a time.

A list is walked in steps, all queues at the same time: each step looks at a bounded number of ids
of the narrowest index. What the queues have found is merged here. A call ends when all of its steps
have looked at enough. The next call goes on there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, TypeVar

import msgspec

from forge_jobs.clock import duration_us, to_us
from forge_jobs.errors import Unavailable
from forge_jobs.model.answering.filters import with_statuses
from forge_jobs.model.filters import JobFilter, JobOrder
from forge_jobs.model.ids import JobId
from forge_jobs.model.queries.matching import Texts, is_deep, texts_match
from forge_jobs.model.queries.terms import Choice, Compared, Term
from forge_jobs.storage.cursors import WALKED_ON_REDIS, Place
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.job_rows import decode_error
from forge_jobs.storage.redis.base.queues import queue_names
from forge_jobs.storage.redis.base.scripts import item_of, request_of
from forge_jobs.storage.redis.keys import queue_of
from forge_jobs.storage.redis.locators.asking import find_by_queue
from forge_jobs.storage.salvage import UNREADABLE

FilterParts = tuple[object, ...]


def filter_parts(which: JobFilter) -> FilterParts:
    """The argument of ``filters.lua``, without ids, queues and what is said of texts."""
    return item_of(
        "match",
        "parts",
        kinds=tuple(dict.fromkeys(which.kinds)),
        statuses=tuple(dict.fromkeys(status.value for status in which.statuses)),
        causes=tuple(cause.value for cause in which.causes),
        tag=_or_false(which.tag),
        key=_or_false(which.unique_key),
        schedule=_or_false(which.schedule),
        before=_instant(which.enqueued_before),
        terms=tuple(_term(term) for term in which.terms if _is_for_scripts(term)),
        **{"from": _instant(which.enqueued_after)},
    )


def _is_for_scripts(term: Term) -> bool:
    """Return whether scripts check the term. A script knows no name of a queue, and no texts."""
    return term.name != "queue" and not is_deep(term)


def _term(term: Term) -> tuple[object, ...]:
    if isinstance(term, Choice):
        return item_of(
            "find", "term", name=term.name, how=term.excluded, of=term.values, is_age=False
        )
    assert isinstance(term, Compared)
    value, is_age = term.value, False
    if isinstance(value, timedelta):
        value, is_age = duration_us(value), True
    elif isinstance(value, datetime):
        value = to_us(value)
    return item_of("find", "term", name=term.name, how=term.sign, of=value, is_age=is_age)


def _queues_meant(which: JobFilter, names: Iterable[str]) -> list[str]:
    """Return the queues that terms do not exclude."""
    about = [term for term in which.terms if isinstance(term, Choice) and term.name == "queue"]
    return [name for name in names if all((name in term.values) != term.excluded for term in about)]


def _or_false(text: str | None) -> object:
    return False if text is None else text


def _instant(value: datetime | None) -> object:
    return False if value is None else to_us(value)


Located = tuple[JobId, str]
"""A job's id and the base of its queue."""

PORTION = 1000
"""How many ids one step takes at most."""

_STEP = 500
"""How many ids the queues of one step look at together, at most."""

_FEWEST, _USUAL = 10, 200
"""How many ids one queue looks at in a step, with many queues and with few."""

T = TypeVar("T")


class _Step(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``find.lua``, ``find_ended.lua`` and ``find_due.lua``.

    :param position: where to go on. "" at the end of the list
    :param ats: the times of the jobs, in a list by times
    :param at: the time of the position
    """

    ids: list[JobId]
    position: str
    ats: list[int] = []
    at: int = 0

    def places(self) -> Iterable[Place]:
        if not self.ats:
            return (Place(0, job_id) for job_id in self.ids)
        return map(Place, self.ats, self.ids)


class _Way(NamedTuple):
    """How a list is walked.

    :ivar script: takes one step in the list of a queue
    """

    script: str
    is_descending: bool


_NEWEST, _OLDEST = _Way("find", is_descending=True), _Way("find", is_descending=False)
_BY_TIME: Mapping[JobOrder, _Way] = {
    "finished": _Way("find_ended", is_descending=True),
    "due": _Way("find_due", is_descending=False),
}


READ = 1_000
"""How many jobs of one call have their texts read. A call reads 50 in a request."""


def portions(items: Sequence[T], size: int = PORTION) -> Iterator[Sequence[T]]:
    """The items in runs of at most ``size``."""
    return (items[start : start + size] for start in range(0, len(items), size))


class Found(NamedTuple):
    """The jobs that one call has found.

    :ivar looked_at: the last job looked at, where there are more to look at. None: these are all,
        or as many as were asked for
    :ivar silent: queues that did not answer. Always empty where queues were named
    """

    jobs: list[Located]
    looked_at: JobId | None
    silent: frozenset[str] = frozenset()


class FoundByTime(NamedTuple):
    """As :class:`Found`, with the places of the jobs, each beside the base of the queue."""

    places: list[tuple[Place, str]]
    looked_at: Place | None
    silent: frozenset[str] = frozenset()

    def as_found(self) -> Found:
        """Return the same without times."""
        jobs = [(place.id, base) for place, base in self.places]
        return Found(jobs, self.looked_at.id if self.looked_at else None, self.silent)


async def oldest(db: Database, which: JobFilter, after: str, limit: int) -> Found:
    """The first matching jobs beyond ``after``, ascending. ``which.ids`` is not looked at.

    :raises Unavailable: also when a single queue does not answer
    """
    found = await _walk(db, which, _OLDEST, _place(after), limit)
    if found.silent:
        raise Unavailable(
            f"the server of queue {min(found.silent)!r} does not answer; name other queues, or wait"
        )
    return found.as_found()


async def newest(db: Database, which: JobFilter, before: str, limit: int) -> Found:
    """The first matching jobs below ``before`` ("": all), descending."""
    if which.ids is None:
        return (await _walk(db, which, _NEWEST, _place(before), limit)).as_found()
    named = sorted({job_id for job_id in which.ids if not before or job_id < before}, reverse=True)
    found: list[Located] = []
    for portion in portions(named):
        found += sorted(await matching(db, which, portion), reverse=True)
        if len(found) >= limit:
            break
    return Found(found[:limit], None)


async def by_time(
    db: Database, which: JobFilter, order: JobOrder, beyond: Place | None, limit: int
) -> FoundByTime:
    """The first matching jobs behind ``beyond``, by times. ``which.ids`` is not looked at."""
    return await _walk(db, which, _BY_TIME[order], beyond, limit)


def _place(job_id: str) -> Place | None:
    return Place(0, JobId(job_id)) if job_id else None


async def _walk(
    db: Database, which: JobFilter, way: _Way, beyond: Place | None, limit: int
) -> FoundByTime:
    narrow = with_statuses(which)
    if narrow.ids == () and which.ids is None:
        return FoundByTime([], None)
    which = narrow
    parts = filter_parts(which)
    names = await meant_queues(db, which)
    positions: dict[str, Place | None] = {db.keys.queue(name): beyond for name in names}
    found: list[tuple[Place, str]] = []
    silent: set[str] = set()
    looked_at, most = 0, READ if which.deep else WALKED_ON_REDIS
    while positions:
        if looked_at >= most:
            # Beyond the nearest position some queue may have jobs that were not looked at.
            ends = [at for at in positions.values() if at is not None]
            end = max(ends) if way.is_descending else min(ends)
            nearest = [one for one in found if one[0] == end or (one[0] > end) == way.is_descending]
            given_up_at = end if len(nearest) < limit else None
            return FoundByTime(nearest[:limit], given_up_at, frozenset(silent))
        size = max(_FEWEST, min(_STEP // len(positions), max(limit, _USUAL)))
        wanted = size if which.deep else limit
        requests = {base: _request(parts, at, wanted, size, way) for base, at in positions.items()}
        looked_at += size * len(positions)
        positions = {}
        steps = await db.run_some(way.script, requests, _Step)
        if which.queues and steps.silent:
            raise next(iter(steps.silent.values()))
        silent.update(map(queue_of, steps.silent))
        places = {base: list(step.places()) for base, step in steps.found.items()}
        if which.deep:
            places = await _with_texts(db, which, places)
        for base, step in steps.found.items():
            found += ((place, base) for place in places[base])
            if step.position:
                positions[base] = Place(step.at, JobId(step.position))
        found.sort(reverse=way.is_descending)
        if len(found) >= limit:
            # A queue that is past the last job of the page has no more for the page.
            last = found[limit - 1][0]
            positions = {
                base: at
                for base, at in positions.items()
                if at is not None and (at > last if way.is_descending else at < last)
            }
    return FoundByTime(found[:limit], None, frozenset(silent))


def _request(
    parts: FilterParts, beyond: Place | None, limit: int, size: int, way: _Way
) -> tuple[object, ...]:
    at, job_id = beyond or (0, "")
    # A list by ids goes either way, one by times has a time.
    rest = {"is_descending": way.is_descending} if way.script == "find" else {"at": at}
    return request_of(way.script, meant=parts, beyond=job_id, wanted=limit, visited=size, **rest)


async def matching(db: Database, which: JobFilter, ids: Iterable[JobId]) -> list[Located]:
    """Return those of the jobs that the filter means."""
    parts = filter_parts(which)
    located = await find_by_queue(db, ids)
    requests = {
        base: request_of("match", meant=parts, ids=found)
        for base, found in located.items()
        if is_meant_queue(which, base)
    }
    answers = await db.run("match", requests, list[JobId])
    if which.deep:
        seen = await texts_seen(db, which, answers)
        answers = {base: [each for each in ids if each in seen] for base, ids in answers.items()}
    return [(job_id, base) for base, matching in answers.items() for job_id in matching]


async def meant_queues(db: Database, which: JobFilter) -> list[str]:
    """Return the queues whose jobs the filter may mean."""
    return _queues_meant(which, dict.fromkeys(which.queues or await queue_names(db)))


def is_meant_queue(which: JobFilter, base: str) -> bool:
    """Return whether the filter may mean jobs of the queue with this base."""
    name = queue_of(base)
    return (not which.queues or name in which.queues) and bool(_queues_meant(which, [name]))


# -- texts -------------------------------------------------------------------------------------


class _Texts(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``texts.lua`` about a job."""

    payload: str
    error: str
    sha: str

    def match(self, terms: Iterable[Term]) -> bool:
        try:
            error = decode_error(self.error) if self.error else None
        except UNREADABLE:
            error = None
        newest = f"{error.type}: {error.message}" if error else ""
        group = error.error_group if error else ""
        return texts_match(terms, Texts(self.payload, newest, group))


async def texts_seen(
    db: Database, which: JobFilter, ids: Mapping[str, Sequence[JobId]]
) -> dict[JobId, str]:
    """Return the jobs whose texts match, each with a hash of the texts that were seen.

    :param ids: by base of their queue
    """
    seen: dict[JobId, str] = {}
    for base, mine in ids.items():
        for some in portions(mine, _TEXTS_AT_ONCE):
            answers = await db.run("texts", {base: request_of("texts", ids=some)}, _TEXTS)
            for job_id, texts in zip(some, answers[base], strict=True):
                if texts and texts.match(which.deep):
                    seen[job_id] = texts.sha
    return seen


async def _with_texts(
    db: Database, which: JobFilter, places: Mapping[str, Sequence[Place]]
) -> dict[str, list[Place]]:
    ids = {base: [place.id for place in mine] for base, mine in places.items()}
    seen = await texts_seen(db, which, ids)
    return {base: [each for each in mine if each.id in seen] for base, mine in places.items()}


_TEXTS = list[_Texts | Literal[False]]
_TEXTS_AT_ONCE = 50
"""A payload may be as large as 1 MiB."""
