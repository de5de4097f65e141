"""The whole numbers that a rate limit is counted in, and which limits can be counted: the same
for every backend."""

from math import lcm
from typing import NamedTuple

import msgspec

from forge_jobs.clock import duration_us
from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.queues import RateLimit, RateLimitState
from forge_jobs.storage.salvage import log_unreadable

NO_LIMIT = RateLimit(1)
"""Shown where the size of a bucket cannot be read."""

_MAX_FULL = 2**52
"""The level of an empty bucket. Scripts of Redis know numbers up to 2^53 exactly."""

_MAX_UNREDUCED = 2**62
"""The same in units of 1/period of a token; twice as much still fits 64 bits."""


class BucketUnits(NamedTuple):
    """The smallest whole numbers in the right proportion.

    :param token: what a token adds to the level
    :param leak: what a microsecond takes away
    """

    token: int
    leak: int


def bucket_units(limit: RateLimit) -> BucketUnits:
    """The units to count this limit in.

    :raises InvalidInput: its tokens come in steps too fine to be counted
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


def checked(limit: RateLimit) -> RateLimit:
    """The limit.

    :raises InvalidInput: it cannot be counted
    """
    bucket_units(limit)
    return limit


def salvaged_limit(found: RateLimitState, problems: str) -> RateLimitState:
    """The bucket as callers see it; logged once when it cannot be read.

    :param problems: what cannot be read of it, "" for nothing
    """
    if not problems:
        return found
    log_unreadable("rate limit", found.scope, problems, _help(found.scope))
    return msgspec.structs.replace(found, unreadable=problems)


def unreadable_limit(scope: str, problems: str) -> NotFound:
    """The error that nobody can tell how many tokens a bucket holds."""
    return NotFound(f"rate limit {scope!r} cannot be read: {problems}; {_help(scope)}")


def _help(scope: str) -> str:
    return f"set it anew with 'forge-jobs limits set {scope}', or delete it"
