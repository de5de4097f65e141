"""Numbers about the near future and the usual, for the Overview: read for all together."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from forge_jobs.model.filters import Count, JobFilter, JobSummary
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.metrics import HOUR, MINUTE
from forge_jobs.model.queries.terms import Compared
from forge_jobs.operating.snapshots.objectives import ObjectiveView, read_objectives
from forge_jobs.operating.snapshots.shared import Reader
from forge_jobs.policy.judgement.problems.problem import Problem, Severity
from forge_jobs.storage.protocols import Storage

_DAY = timedelta(days=1)
_USUAL_DAYS = 7
_AHEAD = 3
_MOST_RETRIES = 5_000
_GROUPS = 1_000


class Glance(Struct, frozen=True, kw_only=True):
    """Numbers that may be some seconds old.

    :param retries: failed jobs that run again within an hour, or are due
    :param ahead: the next jobs that wait for their time, the soonest first
    :param dead: jobs that died in the last 24 hours
    :param usual: in 24 hours, over the seven days before
    :param objectives: by queue, of all queues: callers take those of the queues that they may see
    """

    retries: Count
    ahead: tuple[JobSummary, ...]
    dead: int
    usual: float
    objectives: Mapping[str, ObjectiveView]


async def read_glance(reader: Reader) -> Glance:
    """Read the numbers, in three calls, or four where a queue has an objective.

    :raises Unavailable: the store is silent
    """
    storage, fleet = reader.storage, await reader.fleet()
    now = fleet.now
    soon = Compared("due", "<", now + HOUR)
    retrying = JobFilter(statuses=(JobStatus.FAILED,), terms=(soon,))
    retries = await storage.jobs.count(retrying, at_most=_MOST_RETRIES)
    later = JobFilter(statuses=(JobStatus.PENDING,), terms=(Compared("due", ">", now),))
    ahead = await storage.jobs.list(later, order="due", limit=_AHEAD)
    dead, usual = await _dead(storage, now)
    counts = await reader.counts()
    objectives = await read_objectives(storage, now, fleet.queues, counts, fleet.pods)
    return Glance(
        retries=retries,
        ahead=tuple(ahead.jobs),
        dead=dead,
        usual=usual,
        objectives={each.queue: each for each in objectives},
    )


async def _dead(storage: Storage, now: datetime) -> tuple[int, float]:
    """Return how many jobs died in 24 hours, and how many usually do. Whole hours count."""
    until = now.replace(minute=0, second=0, microsecond=0) + HOUR
    since = until - (_USUAL_DAYS + 1) * _DAY
    found = await storage.jobs.error_groups(since, until + MINUTE, step=HOUR, limit=_GROUPS)
    counts = [count for group in found.groups for count in group.counts]
    dead = sum(count.dead for count in counts if count.at >= until - _DAY)
    before = sum(count.dead for count in counts if count.at < until - _DAY)
    return dead, before / _USUAL_DAYS


class Ended(Struct, frozen=True, kw_only=True):
    """A problem that was seen, and is no more.

    :param at: when the problem was first missed
    """

    problem: Problem
    at: datetime

    @property
    def lasted(self) -> timedelta:
        """How long the problem was there, at most."""
        return max(self.at - self.problem.since, timedelta(0))


def ended_of(before: tuple[Problem, ...], now: tuple[Problem, ...], at: datetime) -> Ended | None:
    """Return the worst problem of a reading that the next reading does not have any more."""
    left = {(each.code, each.about) for each in now}
    gone = [each for each in before if (each.code, each.about) not in left]
    serious = [each for each in gone if each.severity is not Severity.NOTICE]
    return Ended(problem=serious[0], at=at) if serious else None
