"""Objectives: the share of a queue's jobs that should start in time."""

import re
from datetime import timedelta

from msgspec import Struct

from forge_jobs.durations import format_duration, parse_duration
from forge_jobs.errors import InvalidInput, a_type

_FIX = "give one like 95% within 30s"
_TEXT = re.compile(
    r"\s*(\d{1,2}(?:\.\d{1,4})?)\s*%\s+(?:start\s+)?within\s+(\S+?)(?:\s+(ms|s|m|h|d))?\s*",
    re.ASCII,
)


class Objective(Struct, frozen=True):
    """ "95 % of the jobs start within 30 s of being due."

    :param share: above 0 and below 1. All jobs are no objective: one late job in a month would
        miss it, and no budget would be left for a deploy
    :param within: from due to the start of the handler, above zero
    :raises InvalidInput: a value out of range
    """

    share: float
    within: timedelta

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InvalidInput("share", f"is {self.share}", "give more than 0 and less than 1")
        if self.within <= timedelta(0):
            raise InvalidInput("within", f"is {self.within}", "give a duration above zero")

    def __str__(self) -> str:
        return f"{round(self.share * 100, 6):g}% within {format_duration(self.within)}"


def parse_objective(text: str) -> Objective:
    """Read ``95% within 30s``, or ``95 % start within 30 s``.

    :raises InvalidInput: the text is something else
    """
    if not isinstance(text, str):
        raise InvalidInput("objective", f"is {a_type(text)}", _FIX)
    found = _TEXT.fullmatch(text)
    if found is None:
        raise InvalidInput("objective", f"is {text[:40]!r}", _FIX)
    try:
        within = parse_duration(found[2] + (found[3] or ""))
    except ValueError as error:
        raise InvalidInput("objective", str(error).partition("; ")[0], _FIX) from None
    return Objective(round(float(found[1]) / 100, 8), within)
