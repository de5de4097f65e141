"""Groups of failures as every store keeps them: merged by pods' samples, read in steps.

An hour of a group is kept as numbers by places: twice the minute of the hour for what was retried,
and one more for what died.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec import Struct, structs

from forge_jobs.clock import duration_us, from_us, to_us
from forge_jobs.errors import InvalidInput
from forge_jobs.model.failures import (
    MOST_SAMPLES,
    MOST_VERSIONS,
    ErrorGroup,
    FailureCount,
    FailureSample,
    check_steps,
)
from forge_jobs.model.ids import JobId
from forge_jobs.storage.cursors import check_limit

HOUR_US = 3_600_000_000
_MINUTE_US = 60_000_000

Hours = Mapping[int, Mapping[int, int]]
"""The begin of an hour in microseconds -> the numbers of the hour."""


class Failed(Struct, frozen=True, kw_only=True):
    """All that one call says of one group.

    :param jobs: newest first
    """

    queue: str
    group: str
    kind: str
    type: str
    message: str
    first_at: int
    last_at: int
    versions: tuple[str, ...]
    jobs: tuple[JobId, ...]
    hours: Hours


def merged(samples: Iterable[FailureSample]) -> list[Failed]:
    """Return one record per group, in the order of queues and groups."""
    of_group: defaultdict[tuple[str, str], list[FailureSample]] = defaultdict(list)
    for sample in samples:
        of_group[sample.queue, sample.group].append(sample)
    return [_merged(each) for _, each in sorted(of_group.items(), key=lambda item: item[0])]


def _merged(samples: Sequence[FailureSample]) -> Failed:
    hours: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for sample in samples:
        minute = to_us(sample.minute)
        place = minute % HOUR_US // _MINUTE_US * 2
        hour = hours[minute - minute % HOUR_US]
        hour[place] += sample.retried
        hour[place + 1] += sample.dead
    last = max(samples, key=lambda sample: sample.last_at)
    jobs = (job for sample in samples[::-1] for job in sample.jobs[::-1])
    return Failed(
        queue=last.queue,
        group=last.group,
        kind=last.kind,
        type=last.type,
        message=last.message,
        first_at=to_us(min(sample.first_at for sample in samples)),
        last_at=to_us(last.last_at),
        versions=tuple(dict.fromkeys(sample.version for sample in samples if sample.version)),
        jobs=tuple(dict.fromkeys(jobs))[:MOST_SAMPLES],
        hours={hour: +numbers for hour, numbers in hours.items()},
    )


def newest_jobs(before: Sequence[str], more: Sequence[str]) -> list[str]:
    """Return the ids that a group keeps, newest first."""
    return list(dict.fromkeys([*more, *before]))[:MOST_SAMPLES]


def newest_versions(before: Sequence[str], more: Sequence[str]) -> list[str]:
    """Return the versions that a group keeps, oldest first."""
    return list(dict.fromkeys([*before, *more]))[-MOST_VERSIONS:]


class Steps(NamedTuple):
    """The range of a read, cut into steps of whole minutes since the epoch."""

    since: int
    until: int
    step: int

    @classmethod
    def of(cls, since: datetime, until: datetime, step: timedelta) -> "Steps":
        """Return the steps of a range.

        :raises InvalidInput: see :func:`check_steps`
        """
        check_steps(since, until, step)
        return cls(to_us(since), to_us(until), duration_us(step))

    @property
    def first_hour(self) -> int:
        """The begin of the hour of the first instant."""
        return self.since - self.since % HOUR_US

    @property
    def ends(self) -> int:
        """The end of the last minute that begins in the range."""
        return self.until + -self.until % _MINUTE_US

    def counted(self, group: ErrorGroup, hours: Hours) -> ErrorGroup | None:
        """Return the group with the counts of the range, None when there are none."""
        found: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
        for hour, numbers in hours.items():
            for place, number in numbers.items():
                minute = hour + place // 2 * _MINUTE_US
                if self.since <= minute < self.until:
                    found[minute - minute % self.step][place % 2] += number
        if not found:
            return None
        return structs.replace(
            group,
            retried=sum(retried for retried, _ in found.values()),
            dead=sum(dead for _, dead in found.values()),
            counts=tuple(
                FailureCount(at=from_us(at), retried=retried, dead=dead)
                for at, (retried, dead) in sorted(found.items())
            ),
        )


class Place(NamedTuple):
    """Where a page of groups ended. Groups go by these, the greatest first."""

    last_at: int
    queue: str
    group: str

    def cursor(self) -> str:
        """Return the text for callers."""
        return f"{self.last_at} {self.group} {self.queue}"


class GroupsAsked(NamedTuple):
    """A checked question for a page of groups.

    :ivar queue: None means all
    :ivar after: where the page before ended
    """

    steps: Steps
    queue: str | None
    after: Place | None
    limit: int

    @classmethod
    def of(
        cls, steps: Steps, *, queue: str | None, cursor: str | None, limit: int
    ) -> "GroupsAsked":
        """Return the question.

        :raises InvalidInput: the limit is out of range, or no page gave the cursor
        """
        check_limit(limit)
        return cls(steps, queue, place_of(cursor), limit)


def place_of(cursor: str | None) -> Place | None:
    """Return the place that a cursor names.

    :raises InvalidInput: no page gave this cursor
    """
    if cursor is None:
        return None
    last_at, _, rest = cursor.partition(" ") if isinstance(cursor, str) else ("", "", "")
    group, _, queue = rest.partition(" ")
    if not (last_at.isascii() and last_at.isdecimal() and len(last_at) < 18 and group and queue):
        fix = "pass the cursor of the last page"
        raise InvalidInput("cursor", "is not one that a page has given", fix)
    return Place(int(last_at), queue, group)
