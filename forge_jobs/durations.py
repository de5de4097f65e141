"""Durations as texts, ``1h30m``, ``250ms``, ``90``, and the bounds of those in settings."""

import re
from datetime import timedelta
from fractions import Fraction

from forge_jobs.errors import InvalidInput, a_type

_UNITS = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_PART = r"\d{1,18}(?:\.\d{1,18})?"
_DURATION = re.compile(rf"(?:{_PART}|(?:{_PART}(?:ms|s|m|h|d))+)", re.ASCII)
_PARTS = re.compile(rf"({_PART})(ms|s|m|h|d)?", re.ASCII)
DURATION_FIX = "give seconds (90) or a duration (1h30m, 2d, 250ms)"


def parse_duration(text: str) -> timedelta:
    """Parse a duration from ``90`` (seconds), ``1.5s``, ``1h30m``, ``250ms`` or ``2d``.

    Units may come in any order and repeat. They add up. Never negative. Rounded to microseconds.

    :raises ValueError: ``text`` is not a duration, or a duration beyond 999,999,999 days
    """
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a duration; {DURATION_FIX}")
    parts = _PARTS.findall(text)
    microseconds = sum(Fraction(number) * _UNITS[unit or "s"] for number, unit in parts)
    try:
        return timedelta(microseconds=round(microseconds))
    except OverflowError:
        raise ValueError(f"{text[:40]!r} is too long; {DURATION_FIX}") from None


def format_duration(duration: timedelta) -> str:
    """Return the shortest text that :func:`parse_duration` reads back. Not for negatives."""
    rest = duration // timedelta(microseconds=1)
    text = ""
    for unit in ("d", "h", "m"):
        count, rest = divmod(rest, _UNITS[unit])
        text += f"{count}{unit}" if count else ""
    if rest and rest < _UNITS["s"] and rest % _UNITS["ms"] == 0:
        return f"{text}{rest // _UNITS['ms']}ms"
    if rest or not text:
        seconds, fraction = divmod(rest, _UNITS["s"])
        text += f"{seconds}" + (f".{fraction:06}".rstrip("0") if fraction else "") + "s"
    return text


def check_span(field: str, value: object, longest: timedelta) -> timedelta:
    """``value`` as a duration of at least zero. A longer one than ``longest`` is that long.

    :raises InvalidInput: the value is no timedelta, or negative
    """
    if not isinstance(value, timedelta):
        fix = "give a timedelta of zero or more, as timedelta(seconds=90)"
        raise InvalidInput(field, f"is {a_type(value)}", fix)
    if value < timedelta(0):
        raise InvalidInput(field, f"is {value}", "give zero or more")
    return min(value, longest)
