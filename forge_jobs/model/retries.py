"""How long to wait between attempts, as values: stored with a queue or kept with a handler.

``policy.backoff`` turns them into delays.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct

from forge_jobs.durations import format_duration, parse_duration
from forge_jobs.errors import InvalidInput, a_type

LONGEST_DELAY = timedelta(days=3650)
"""No delay is longer, also when a caller asks for more: sums with any present time stay valid."""

_HOUR = timedelta(hours=1)
_FACTOR = 2.0


def _check(field: str, value: object) -> None:
    fix = f"give seconds or a timedelta, from 0 to {LONGEST_DELAY.days} days"
    if not isinstance(value, timedelta | int | float) or isinstance(value, bool):
        raise InvalidInput(field, f"is {a_type(value)}", fix)
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not 0 <= seconds <= LONGEST_DELAY.total_seconds():
        raise InvalidInput(field, f"is {value!s:.40}", fix)


def _check_jitter(value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidInput("jitter", f"is {a_type(value)}", "give True or False")


class Exponential(Struct, frozen=True, kw_only=True, tag="exponential"):
    """Pauses of ``base`` x ``factor`` ^ (attempt - 1), up to ``cap``, as ``Exponential(cap=600)``.

    :param base: ceiling of the first delay. A number is seconds
    :param factor: at least 1
    :param cap: the longest ceiling. A number is seconds
    :param jitter: draw from zero to the ceiling. Else wait for the ceiling itself
    """

    base: timedelta | float = timedelta(seconds=1)
    factor: float = _FACTOR
    cap: timedelta | float = _HOUR
    jitter: bool = True

    def __post_init__(self) -> None:
        _check("base", self.base)
        _check("cap", self.cap)
        _check_jitter(self.jitter)
        is_number = isinstance(self.factor, int | float) and not isinstance(self.factor, bool)
        if not is_number or not 1.0 <= self.factor < math.inf:
            raise InvalidInput("factor", f"is {self.factor!r:.40}", "give a number from 1")


class Linear(Struct, frozen=True, tag="linear"):
    """Pauses that grow by ``step`` with each failed attempt: ``Linear(10, cap=300)``.

    :param step: how much longer each ceiling is than the one before. A number is seconds
    :param cap: the longest ceiling. A number is seconds
    :param jitter: draw from zero to the ceiling. Else wait for the ceiling itself
    :raises InvalidInput: a duration is negative or too long
    """

    step: timedelta | float
    cap: timedelta | float = _HOUR
    jitter: bool = True

    def __post_init__(self) -> None:
        _check("step", self.step)
        _check("cap", self.cap)
        _check_jitter(self.jitter)


class Fixed(Struct, frozen=True, tag="fixed"):
    """The same pause after each failed attempt: ``Fixed(30)``.

    :param delay: the ceiling. A number is seconds
    :param jitter: draw from zero to the ceiling. Else wait for the ceiling itself
    :raises InvalidInput: ``delay`` is negative or too long
    """

    delay: timedelta | float
    jitter: bool = True

    def __post_init__(self) -> None:
        _check("delay", self.delay)
        _check_jitter(self.jitter)


class Delays(Struct, frozen=True, tag="delays"):
    """A pause per failed attempt, and the last one from there on: ``Delays((10, 60, 3600))``.

    :param delays: the ceilings, at least one. Numbers are seconds
    :param jitter: draw from zero to the ceiling. Else wait for the ceiling itself
    :raises InvalidInput: ``delays`` is empty, or one of them is negative or too long
    """

    delays: tuple[timedelta | float, ...]
    jitter: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.delays, str) or not isinstance(self.delays, Sequence):
            fix = "give a tuple of seconds or timedeltas"
            raise InvalidInput("delays", f"is {a_type(self.delays)}", fix)
        if not self.delays:
            raise InvalidInput("delays", "is empty", "give at least one delay")
        for delay in self.delays:
            _check("delays", delay)
        _check_jitter(self.jitter)


Retry = Exponential | Linear | Fixed | Delays
"""A retry policy that can be stored."""

RETRY_FIX = (
    "give Exponential(...), Linear(...), Fixed(...) or Delays(...); how often a job is tried is "
    "max_attempts"
)


def parse_retry(text: str, field: str = "retry") -> Retry:
    """Return the policy of a text: ``exponential:1s:10m``, ``fixed:30s``, ``delays:1s,5s``.

    At the end ``factor=3`` (of exponential) and ``jitter=no`` may stand: ``fixed:30s:jitter=no``.

    :raises InvalidInput: names the field
    """
    form, *parts = text.split(":")
    spans = [part for part in parts if "=" not in part]
    named = dict(part.split("=", 1) for part in parts if "=" in part)
    try:
        more: dict[str, Any] = {}
        if "factor" in named:
            more["factor"] = float(named.pop("factor"))
        if "jitter" in named:
            more["jitter"] = {"yes": True, "no": False}[named.pop("jitter")]
        if named or parts[: len(spans)] != spans:
            raise ValueError(form)
        return _FORMS[form](*spans, **more)
    except (KeyError, TypeError, ValueError, OverflowError):
        fix = "give exponential[:BASE[:CAP]], linear:STEP[:CAP], fixed:DELAY or delays:1s,5s, and "
        fix += "factor=3 or jitter=no at the end"
        raise InvalidInput(field, f"is {text[:40]!r}", fix) from None


def retry_text(policy: Retry) -> str:
    """Return the policy as :func:`parse_retry` reads one."""
    match policy:
        case Exponential():
            text = f"exponential:{_span(policy.base)}:{_span(policy.cap)}"
            if policy.factor != _FACTOR:
                text += f":factor={policy.factor:g}"
        case Linear():
            text = f"linear:{_span(policy.step)}:{_span(policy.cap)}"
        case Fixed():
            text = f"fixed:{_span(policy.delay)}"
        case Delays():
            text = "delays:" + ",".join(_span(each) for each in policy.delays)
    return text if policy.jitter else f"{text}:jitter=no"


def _span(value: timedelta | float) -> str:
    return format_duration(value if isinstance(value, timedelta) else timedelta(seconds=value))


_FORMS: Mapping[str, Callable[..., Retry]] = {
    "exponential": lambda base="1s", cap="1h", **more: Exponential(
        base=parse_duration(base), cap=parse_duration(cap), **more
    ),
    "linear": lambda step, cap="1h", **more: Linear(
        parse_duration(step), parse_duration(cap), **more
    ),
    "fixed": lambda delay, **more: Fixed(parse_duration(delay), **more),
    "delays": lambda delays, **more: Delays(
        tuple(parse_duration(each) for each in delays.split(",")), **more
    ),
}
