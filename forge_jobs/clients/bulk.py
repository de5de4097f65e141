"""Operations on many jobs, in batches that keep no other call waiting."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping

from msgspec import Struct

from forge_jobs.model.filters import BulkOutcome, JobFilter, Refusal
from forge_jobs.model.ids import JobId, check_job_id

_BULK_IDS = 500


class BulkTotals(Struct, frozen=True):
    """The sums of a bulk operation over all jobs that it was asked for.

    :param changed: jobs that were changed
    :param requested: running jobs whose owner was asked to stop (cancel only)
    :param refused: how many jobs were left as they were, by reason
    """

    changed: int
    requested: int
    refused: Mapping[Refusal, int]


def sum_of(first: BulkTotals, second: BulkTotals) -> BulkTotals:
    """Return the totals of two operations."""
    refused = Counter(first.refused) + Counter(second.refused)
    changed, requested = first.changed + second.changed, first.requested + second.requested
    return BulkTotals(changed, requested, dict(refused))


async def in_batches(
    operation: Callable[..., Awaitable[BulkOutcome]], which: str | Iterable[str] | JobFilter
) -> BulkTotals:
    """Visit every job that is meant, one bounded call after another."""
    changed = requested = 0
    refused: dict[Refusal, int] = {}
    for part in _parts(which):
        cursor: str | None = None
        while True:
            outcome = await operation(part, cursor=cursor)
            changed += len(outcome.changed)
            requested += len(outcome.requested)
            for reason in outcome.refused.values():
                refused[reason] = refused.get(reason, 0) + 1
            cursor = outcome.cursor
            if cursor is None:
                break
    return BulkTotals(changed, requested, refused)


def _parts(which: str | Iterable[str] | JobFilter) -> Iterable[JobFilter]:
    if isinstance(which, JobFilter):
        return [which]
    if not isinstance(which, Iterable):
        which = check_job_id(which, "which")
    ids = [which] if isinstance(which, str) else which
    # An empty tuple in a filter means any job. A caller who lists no job means none.
    wanted: list[JobId] = list(dict.fromkeys(check_job_id(each, "job_id") for each in ids))
    return [
        JobFilter(ids=tuple(wanted[start : start + _BULK_IDS]))
        for start in range(0, len(wanted), _BULK_IDS)
    ]
