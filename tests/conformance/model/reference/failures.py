"""Groups of failures, counted anew from all samples at each read."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta

from forge_jobs.clock import EPOCH
from forge_jobs.model.failures import (
    MOST_SAMPLES,
    MOST_VERSIONS,
    ErrorGroup,
    FailureCount,
    FailureSample,
)
from forge_jobs.model.ids import JobId


def kept_from(samples: list[FailureSample], before: datetime) -> list[FailureSample]:
    """Return the samples of groups that failed after ``before``, without counts of older hours."""
    newest: dict[tuple[str, str], datetime] = {}
    for each in samples:
        key = each.queue, each.group
        newest[key] = max(newest.get(key, EPOCH), each.last_at)
    return [each for each in samples if newest[each.queue, each.group] > before]


def groups(
    samples: Iterable[FailureSample], since: datetime, until: datetime, step: timedelta
) -> list[ErrorGroup]:
    """Return all groups, the last failure first."""
    of_group: defaultdict[tuple[str, str], list[FailureSample]] = defaultdict(list)
    for each in samples:
        of_group[each.queue, each.group].append(each)
    found = [_group(each, since, until, step) for each in of_group.values()]
    return sorted(found, key=lambda each: (each.last_at, each.queue, each.id), reverse=True)


def _group(
    samples: list[FailureSample], since: datetime, until: datetime, step: timedelta
) -> ErrorGroup:
    counts: defaultdict[datetime, list[int]] = defaultdict(lambda: [0, 0])
    versions: list[str] = []
    jobs: list[JobId] = []
    for each in samples:
        if since <= each.minute < until:
            at = each.minute - (each.minute - EPOCH) % step
            counts[at][0] += each.retried
            counts[at][1] += each.dead
        versions += [each.version] if each.version not in versions else []
        jobs = [*dict.fromkeys([*each.jobs[::-1], *jobs])][:MOST_SAMPLES]
    first = samples[0]
    return ErrorGroup(
        id=first.group,
        queue=first.queue,
        kind=first.kind,
        type=first.type,
        message=first.message,
        retried=sum(retried for retried, _ in counts.values()),
        dead=sum(dead for _, dead in counts.values()),
        first_at=min(each.first_at for each in samples),
        last_at=max(each.last_at for each in samples),
        versions=tuple(each for each in versions if each)[-MOST_VERSIONS:],
        jobs=tuple(jobs),
        counts=tuple(
            FailureCount(at=at, retried=retried, dead=dead)
            for at, (retried, dead) in sorted(counts.items())
            if retried or dead
        ),
    )
