"""The whole numbers in which every backend counts a rate limit, and which limits can be counted."""

from math import lcm
from typing import NamedTuple

import msgspec

from forge_jobs.clock import duration_us
from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.names import command_line
from forge_jobs.model.queues import RateLimit, RateLimitState
from forge_jobs.storage.salvage import log_unreadable

NO_LIMIT = RateLimit(1)
"""Shown where the size of a bucket cannot be read."""

_MAX_FULL = 2**52
"""The level of an empty bucket. Scripts of Redis know numbers up to 2^53 exactly."""

_MAX_UNREDUCED = 2**62
"""The same in units of 1/period of a token. Twice as much still fits 64 bits."""


class BucketUnits(NamedTuple):
    """The smallest whole numbers in the right proportion.

    :param token: what a token adds to the level
    :param leak: what the level loses in a microsecond
    """

    token: int
    leak: int


def bucket_units(limit: RateLimit) -> BucketUnits:
    """Return the units in which to count this limit.

    :raises InvalidInput: the steps of the limit's tokens are too fine to be counted
    """
    period = duration_us(limit.period)
    full = lcm(limit.capacity, period)
    if full > _MAX_FULL or limit.capacity * period > _MAX_UNREDUCED:
        raise InvalidInput(
            "capacity",
            f"is {limit.capacity} per {limit.period}, finer than a bucket can count",
            "give a rounder number, or the same rate over a shorter period",
        )
    return BucketUnits(token=full // limit.capacity, leak=full // period)


_AHEAD_US = 15 * 60 * 1_000_000


def furthest_us(limit: RateLimit) -> int:
    """Return how far ahead tokens can be reserved, in microseconds.

    The same in every store. Less than 15 minutes only where the level would leave the numbers that
    a store counts in.
    """
    leak = bucket_units(limit).leak
    return min(_AHEAD_US, _MAX_FULL // leak, _MAX_UNREDUCED // 2 // limit.capacity)


def checked(limit: RateLimit) -> RateLimit:
    """Return ``limit`` when it can be counted.

    :raises InvalidInput: the limit cannot be counted
    """
    bucket_units(limit)
    return limit


def salvaged_limit(found: RateLimitState, problems: str) -> RateLimitState:
    """Return the bucket as callers see it. An unreadable bucket is logged once.

    :param problems: what cannot be read of the bucket, "" for nothing
    """
    if not problems:
        return found
    log_unreadable("rate limit", found.scope, problems, _help(found.scope))
    return msgspec.structs.replace(found, unreadable=problems)


def unreadable_limit(scope: str, problems: str) -> NotFound:
    """Return the error for a bucket whose tokens cannot be read."""
    return NotFound(f"rate limit {scope!r} cannot be read: {problems}; {_help(scope)}")


def _help(scope: str) -> str:
    return f"set it anew with {command_line('limits set', scope)}, or delete it"
