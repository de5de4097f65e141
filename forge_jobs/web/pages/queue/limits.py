"""The page of all limits and strikes."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from forge_jobs.model.filters import JobFilter, JobSummary
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.operating.settings.concurrency import ConcurrencyLine
from forge_jobs.operating.settings.documents import RateLimitView
from forge_jobs.web.pages.deeds import LIMIT_DEEDS, STRIKE_DEEDS
from forge_jobs.web.pages.frame import Shown, Visit
from forge_jobs.web.pages.words import number

_JOBS = 20
_LISTED = 50
_MOST_PAGES = 10_000
_STRIKES = "forge-jobs strikes list"
_DEEDS = (*LIMIT_DEEDS, *STRIKE_DEEDS)
_WAIT_FOR_TOKENS = JobFilter(statuses=(JobStatus.PENDING,), causes=(Cause.RATE_LIMITED,))

T = TypeVar("T")


class _Listed(NamedTuple):
    """A page of one table.

    :ivar rows: of this page
    :ivar first: the place of the first row, from 1
    :ivar number: rows of all pages
    """

    rows: Sequence[object]
    first: int
    number: int

    @property
    def last(self) -> int:
        return self.first + len(self.rows) - 1


async def limits_page(visit: Visit) -> Shown:
    """Show limits with the jobs that wait for tokens, and all strikes.

    Of many limits the page shows some: those at which jobs wait first, and others by search.
    """
    limits = (await visit.operator.list_limits()).rate_limits
    at_once = (await visit.operator.list_concurrency()).limits
    waiting = {each.scope: each for each in (await visit.reader.looked()).snapshot.limits}
    jobs: Sequence[JobSummary] = ()
    if waiting:
        jobs = (await visit.operator.list_jobs(_WAIT_FOR_TOKENS, order="due", limit=_JOBS)).jobs
    access = visit.actor.access
    strikes = (await visit.operator.list_strikes()).strikes
    wanted, page = visit.parameter("find").strip(), _page(visit.parameter("page"))

    def rate_rank(each: RateLimitView) -> tuple[bool, bool, str]:
        return each.scope not in waiting, each.available > 0, each.scope

    def line_rank(each: ConcurrencyLine) -> tuple[int, str, str]:
        return -each.waiting, each.queue, each.name

    rates = _listed(limits, wanted, page, lambda each: each.scope, rate_rank)
    lines = _listed(at_once, wanted, page, lambda each: f"{each.queue} {each.name}", line_rank)
    return Shown(
        template="limits.html",
        title="Limits",
        commands=("forge-jobs limits list", "forge-jobs limits concurrency", _STRIKES),
        values={
            "rates": rates,
            "lines": lines,
            "are_any": bool(limits),
            "are_many": max(len(limits), len(at_once)) > _LISTED,
            "find": wanted,
            "page": page,
            "more": max(rates.number - rates.last, lines.number - lines.last) > 0,
            "waiting": waiting,
            "jobs": jobs,
            "strikes": strikes,
            "headline": _headline(limits, len(at_once)),
            "may": {each.operation for each in _DEEDS if access.allows(each.operation)},
        },
    )


def _headline(limits: Sequence[RateLimitView], at_once: int) -> str:
    empty = sum(each.available == 0 for each in limits)
    noun = "limit" if len(limits) == 1 else "limits"
    said = f", {number(empty)} without a token now" if empty else ""
    if at_once:
        said += f", {number(at_once)} of jobs at once"
    return f"{number(len(limits))} rate {noun}{said}"


def _page(text: str) -> int:
    """Return the number of a page, from 1. What is no such number is the first."""
    fits = text.isascii() and text.isdigit() and len(text) < 6
    return min(max(int(text), 1), _MOST_PAGES) if fits else 1


def _listed(
    all_rows: Sequence[T],
    wanted: str,
    page: int,
    text_of: Callable[[T], str],
    rank: Callable[[T], tuple[object, ...]],
) -> _Listed:
    """Return the page of the rows in whose text the wanted words are."""
    words = wanted.lower().split()
    rows = [each for each in all_rows if all(word in text_of(each).lower() for word in words)]
    rows.sort(key=rank)
    begin = (page - 1) * _LISTED
    return _Listed(rows[begin : begin + _LISTED], min(begin, len(rows)) + 1, len(rows))
