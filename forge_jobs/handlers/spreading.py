"""Spread over a window: when a job of many is due.

The place in the window follows from the job's id. So a repeat under the same id asks for the same
moment, and two producers that prepare one job agree.
"""

import hashlib
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TypeVar

import msgspec

from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.durations import check_duration
from forge_jobs.handlers.requests import EnqueueRequest, Share
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import NewJob

R = TypeVar("R")

MAX_SPREAD = timedelta(days=366)

_ZERO = timedelta(0)


def check_spread(value: object) -> timedelta:
    """``value`` as a window, a timedelta or seconds.

    :raises InvalidInput: no duration, zero or less, or longer than a year
    """
    window = check_duration("spread", value, above_zero=True)
    if window > MAX_SPREAD:
        raise InvalidInput("spread", f"is {window}", f"give at most {MAX_SPREAD.days} days")
    return window


def spread_over(
    requests: Iterable[EnqueueRequest[R]], spread: timedelta | float | None
) -> Sequence[EnqueueRequest[R]]:
    """Return the requests, each with an even share of the window, in their order.

    :param spread: the window, which counts in place of the requests' own. None: they stay
    :raises InvalidInput: see :func:`check_spread`
    """
    given = tuple(requests)
    if spread is None:
        return given
    window = check_spread(spread)
    return tuple(
        msgspec.structs.replace(request, spread=Share(window, index, len(given)))
        for index, request in enumerate(given)
    )


def spread_out(job: NewJob, asked: timedelta | float | Share) -> NewJob:
    """Return the job, due later by the part of the window that belongs to the job's id.

    The fingerprint stays that of the job before, so a repeat may come with another window, and
    does not move the stored job.

    :raises InvalidInput: the window is wrong, or does not go with another option
    """
    if job.unique is not None and job.unique.mode == "debounce":
        fix = "leave it out; the window of the key says when the job runs"
        raise InvalidInput("spread", "is given together with mode 'debounce'", fix)
    if isinstance(asked, Share):
        step = asked.window / asked.count
        later = step * asked.index + _part_of(step, job.id)
    else:
        later = _part_of(check_spread(asked), job.id)
    if job.run_at is None:
        return msgspec.structs.replace(job, delay=(job.delay or _ZERO) + later)
    try:
        return msgspec.structs.replace(job, run_at=job.run_at + later)
    except OverflowError:
        problem = f"of {later} leads past the last instant there is"
        raise InvalidInput("spread", problem, "give an earlier run_at") from None


def _part_of(window: timedelta, job_id: JobId) -> timedelta:
    """Return a part of the window, below the whole: uniform over ids, and the same for one id."""
    number = int.from_bytes(hashlib.blake2b(job_id.encode(), digest_size=8).digest())
    microseconds = window // timedelta(microseconds=1)
    return timedelta(microseconds=microseconds * number >> 64)
