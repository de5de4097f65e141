"""Delays between a failed attempt and the next.

"Full jitter" after Marc Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015):
a delay is drawn evenly from zero to the computed ceiling. Of the variants compared there this one
spreads jobs that failed together best and costs the upstream the fewest calls.
"""

import math
from collections.abc import Callable
from datetime import timedelta

from forge_jobs.errors import InvalidInput
from forge_jobs.model.retries import (
    LONGEST_DELAY,
    RETRY_FIX,
    Delays,
    Exponential,
    Fixed,
    Linear,
    Retry,
)
from forge_jobs.policy.randomness import Randomness, draw
from forge_jobs.reports import reporter

logger = reporter(__name__)

LONGEST_CRASH_PAUSE = timedelta(minutes=10)
"""A job that may crash without limit is still tried every ten minutes."""

_ZERO = timedelta(0)


def _duration(value: timedelta | float) -> timedelta:
    return value if isinstance(value, timedelta) else timedelta(seconds=value)


DelayFunction = Callable[[int, BaseException | None], timedelta | float]
"""A function of the failed attempt (from 1) and the exception, if known: a delay or seconds."""

RetryPolicy = Retry | DelayFunction


def check_retry(field: str, value: object) -> None:
    """Refuse what is no retry policy.

    :raises InvalidInput: says what one is
    """
    if not isinstance(value, Retry) and not callable(value):
        raise InvalidInput(field, f"is {value!r}", f"{RETRY_FIX}; or a function of the attempt")


DEFAULT_RETRY = Exponential()


def retry_delay(
    policy: RetryPolicy,
    attempt: int,
    *,
    error: BaseException | None = None,
    rng: Randomness,
) -> timedelta:
    """The delay after ``attempt`` failed, counted from now.

    Between zero and the policy's cap, and never above ``LONGEST_DELAY``. The answer of a callable
    is used as given, without jitter. When a callable raises, or returns anything but a finite
    duration of at least zero, the error is logged and the default policy takes over.

    :param attempt: the attempt that failed, from 1. Any size
    :param error: handed to a callable policy
    """
    if not isinstance(policy, Exponential | Linear | Fixed | Delays):
        answer = _ask(policy, attempt, error)
        if answer is not None:
            return answer
        policy = DEFAULT_RETRY
    ceiling = min(_ceiling(policy, max(attempt, 1)), LONGEST_DELAY)
    if not policy.jitter:
        return ceiling
    return min(ceiling * max(draw(rng), 0.0), ceiling)


def crash_delay(crashes: int, pause: timedelta) -> timedelta:
    """The delay of a job after its second or a further crash.

    Twice as long each time, up to ``LONGEST_CRASH_PAUSE``. Without jitter: each crash has been
    noticed at another moment.

    :param crashes: at least 2, the last one included
    :param pause: after the second crash
    """
    return _exponential(pause, 2.0, LONGEST_CRASH_PAUSE, crashes - 1)


def bounded_delay(delay: timedelta) -> timedelta:
    """A delay that a handler asked for, moved into [0, ``LONGEST_DELAY``]."""
    return min(max(delay, _ZERO), LONGEST_DELAY)


def _ceiling(policy: Retry, attempt: int) -> timedelta:
    if isinstance(policy, Exponential):
        return _exponential(_duration(policy.base), policy.factor, _duration(policy.cap), attempt)
    if isinstance(policy, Linear):
        step, cap = _duration(policy.step), _duration(policy.cap)
        # Compare before multiplying: the product of a late attempt is no timedelta.
        return cap if step > _ZERO and attempt > cap // step else min(step * attempt, cap)
    if isinstance(policy, Fixed):
        return _duration(policy.delay)
    return _duration(policy.delays[min(attempt, len(policy.delays)) - 1])


def _exponential(base: timedelta, factor: float, cap: timedelta, attempt: int) -> timedelta:
    if base <= _ZERO or base >= cap:
        return min(base, cap)
    # By logarithms, since factor ** attempt overflows from about the thousandth attempt.
    if (attempt - 1) * math.log(factor) >= math.log(cap / base):
        return cap
    return min(base * factor ** (attempt - 1), cap)


def _ask(policy: DelayFunction, attempt: int, error: BaseException | None) -> timedelta | None:
    try:
        answer = policy(attempt, error)
        if isinstance(answer, timedelta) and answer >= _ZERO:
            return min(answer, LONGEST_DELAY)
        if not isinstance(answer, bool) and 0 <= answer < math.inf:  # type: ignore[operator]
            return _duration(min(answer, LONGEST_DELAY.total_seconds()))
        problem = f"returned {answer!r:.100}"
    except BaseException as failure:  # whatever the caller's code raises ends no event loop
        problem = f"raised {type(failure).__name__}"
    logger.warning("retry policy %s; the default policy is used", problem)
    return None
