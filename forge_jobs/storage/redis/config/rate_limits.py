"""Rate limits by the Generic Cell Rate Algorithm, exact in integers.

The algorithm of the SQL backends. Their module has the explanation. Numbers of scripts are exact up
to 2^53 only, so the level counts in the smallest units in which tokens and microseconds are both
whole. See ``forge_jobs.storage.buckets``.
"""

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from forge_jobs.clock import duration_us
from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.names import check_name
from forge_jobs.model.queues import RateLimit, RateLimitState, TokenGrant
from forge_jobs.storage.buckets import NO_LIMIT, bucket_units, salvaged_limit, unreadable_limit
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.scripts import request_of
from forge_jobs.storage.salvage import Fields


class _Taken(msgspec.Struct, frozen=True, array_like=True):
    outcome: str
    number: int


class _Turns(msgspec.Struct, frozen=True, array_like=True):
    """``waits`` in microseconds, -1 where the line is too long."""

    outcome: str
    capacity: int
    waits: list[int]


class _Bucket(msgspec.Struct, frozen=True, array_like=True):
    scope: str
    capacity: int
    period: int
    available: int
    overridden: bool
    next_in: int


async def take(database: Database, scope: str, count: int, within: timedelta) -> TokenGrant:
    """Take ``count`` tokens or none. See ``ConfigStore.take_tokens``."""
    [asked] = _asked([count])
    request = request_of("take_tokens", scope=scope, asked=asked, within=duration_us(within))
    taken = await database.run_one("take_tokens", database.keys.fleet, request, _Taken)
    _refuse(taken.outcome, taken.number, scope, count)
    return TokenGrant(taken.outcome == "granted", timedelta(microseconds=taken.number))


async def take_turns(
    database: Database, scope: str, counts: Sequence[int], within: timedelta
) -> list[timedelta | None]:
    """Give places in the line of the bucket. See ``ConfigStore.take_turns``."""
    request = request_of(
        "take_turns", scope=scope, all_asked=_asked(counts), within=duration_us(within)
    )
    answer = await database.run_one("take_turns", database.keys.fleet, request, _Turns)
    _refuse(answer.outcome, answer.capacity, scope, max(counts, default=0))
    return [None if wait < 0 else timedelta(microseconds=wait) for wait in answer.waits]


def _asked(counts: Sequence[int]) -> list[int]:
    """Return the counts as scripts know them exactly. A cut count is beyond any capacity."""
    for count in counts:
        if count < 1:
            raise InvalidInput("count", f"is {count}", "give at least 1")
    return [min(count, 2**53) for count in counts]


def _refuse(outcome: str, capacity: int, scope: str, count: int) -> None:
    if outcome == "unknown":
        raise _unknown(scope)
    if outcome == "unreadable":
        raise unreadable_limit(scope, "it is no bucket")
    if outcome == "too many":
        raise InvalidInput(
            "count", f"is {count}, and {scope!r} never holds that many", f"give 1 to {capacity}"
        )


async def drain(database: Database, scope: str) -> None:
    """Leave no token in the bucket."""
    if not await database.run_one("drain_tokens", database.keys.fleet, [scope], bool):
        raise _unknown(scope)


async def remove(database: Database, scope: str) -> None:
    """Remove a bucket."""
    if not await database.run_one("delete_limit", database.keys.fleet, [scope], bool):
        raise _unknown(scope)


async def declare(database: Database, scope: str, limit: RateLimit, *, by_operator: bool) -> None:
    """Declare a bucket from code, or set one by hand."""
    check_name("scope", scope)
    units = bucket_units(limit)
    request = request_of(
        "set_limit",
        scope=scope,
        capacity=limit.capacity,
        period=duration_us(limit.period),
        token=units.token,
        leak=units.leak,
        by_operator=by_operator,
    )
    await database.run_one("set_limit", database.keys.fleet, request, bool)


async def states(database: Database) -> list[RateLimitState]:
    """Return every bucket, by scope."""
    found = await database.run_one("limits", database.keys.fleet, [], list[_Bucket])
    return [_state(bucket) for bucket in sorted(found, key=lambda bucket: bucket.scope)]


def _state(bucket: _Bucket) -> RateLimitState:
    read = Fields({"record": bucket})
    state = RateLimitState(
        scope=bucket.scope,
        limit=read.read("record", _limit, NO_LIMIT),
        available=bucket.available,
        overridden=bucket.overridden,
        next_in=None if bucket.next_in < 0 else timedelta(microseconds=bucket.next_in),
    )
    return salvaged_limit(state, "it is no bucket" if read.problems else "")


def _limit(bucket: _Bucket) -> RateLimit:
    return RateLimit(bucket.capacity, timedelta(microseconds=bucket.period))


def _unknown(scope: str) -> NotFound:
    return NotFound(f"there is no rate limit {scope!r}; forge-jobs limits list names all")
