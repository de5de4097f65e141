"""Groups of failures, as a snapshot shows them."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from forge_jobs.model.failures import ErrorGroup, FailureCount
from forge_jobs.model.metrics import MINUTE
from forge_jobs.policy.judgement.problems.snapshot import ErrorsSeen
from forge_jobs.storage.protocols import Storage

_GROUPS = 50
"""Groups that are looked at: those that failed last."""

_DAY = timedelta(days=1)
_LATELY = timedelta(minutes=5)


async def read_groups(storage: Storage, now: datetime) -> Sequence[ErrorGroup]:
    """Read the groups that failed last, with the last day, in one call.

    :raises Unavailable: the store is silent
    """
    found = await storage.jobs.error_groups(now - _DAY, now + MINUTE, limit=_GROUPS)
    return found.groups


def errors_seen(groups: Sequence[ErrorGroup], now: datetime) -> tuple[ErrorsSeen, ...]:
    """Return those of the groups that failed in the last five minutes."""
    return tuple(each for group in groups if (each := _seen(group, now)) is not None)


def _seen(group: ErrorGroup, now: datetime) -> ErrorsSeen | None:
    lately = [count for count in group.counts if count.at > now - _LATELY]
    if not lately:
        return None
    before = sum(_failures(count) for count in group.counts) - sum(map(_failures, lately))
    burst = _burst(group.counts)
    return ErrorsSeen(
        queue=group.queue,
        kind=group.kind,
        type=group.type,
        message=group.message,
        failures=sum(map(_failures, lately)),
        usual=before * (_LATELY / (_DAY - _LATELY)),
        first_at=max(burst[0].at, group.first_at),
        dead=sum(count.dead for count in burst),
    )


def _burst(counts: Sequence[FailureCount]) -> list[FailureCount]:
    """The last minutes with failures, back to five minutes without any."""
    burst = [counts[-1]]
    for count in reversed(counts[:-1]):
        if burst[0].at - count.at > _LATELY:
            break
        burst.insert(0, count)
    return burst


def _failures(count: FailureCount) -> int:
    return count.retried + count.dead
