"""Durations as people write them: a timedelta, or a number of seconds."""

from datetime import timedelta

from forge_jobs.errors import InvalidInput, a_type

MAX_DURATION = timedelta(days=36_500)
"""Bounds what is added to a store's now: a century fits every store's instants."""

_ZERO = timedelta(0)


def check_duration(field: str, value: object, *, above_zero: bool = False) -> timedelta:
    """``value`` as a timedelta. Not negative, at most a hundred years.

    :param above_zero: refuse zero too
    :raises InvalidInput: neither a timedelta nor a finite number, or out of bounds
    """
    fix = f"give seconds or a timedelta, {'above zero' if above_zero else 'zero or more'}"
    if isinstance(value, timedelta):
        duration = value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        # NaN is no more than anything. An int may be too large for a float.
        if not abs(value) <= MAX_DURATION.total_seconds():
            raise InvalidInput(field, f"is {value!s:.40}", f"{fix}, at most a hundred years")
        duration = timedelta(seconds=value)
    else:
        raise InvalidInput(field, f"is {a_type(value)}", fix)
    if duration > MAX_DURATION:
        raise InvalidInput(field, f"is {duration}", f"{fix}, at most a hundred years")
    if above_zero and value and duration == _ZERO:
        raise InvalidInput(field, f"is {value} seconds", "give a microsecond, 1e-06, or more")
    if duration < _ZERO or (above_zero and duration == _ZERO):
        raise InvalidInput(field, f"is {duration.total_seconds():g} seconds", fix)
    return duration
