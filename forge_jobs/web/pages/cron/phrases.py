"""Cron expressions in words."""

import functools

from cron_descriptor import (
    CasingTypeEnum,
    ExpressionDescriptor,
    FormatException,
    MissingFieldException,
    Options,
    WrongArgumentException,
)

from forge_jobs.durations import parse_duration
from forge_jobs.web.pages.words import length

_NICKNAMES = {
    "@hourly": "Every hour, on the hour",
    "@daily": "Every day at 00:00",
    "@midnight": "Every day at 00:00",
    "@weekly": "Every Sunday at 00:00",
    "@monthly": "On the first day of each month at 00:00",
    "@yearly": "On 1 January at 00:00",
    "@annually": "On 1 January at 00:00",
}
_FIELDS = 5
_NO_WORDS = (
    FormatException,
    MissingFieldException,
    WrongArgumentException,
    ValueError,
    LookupError,
)


@functools.lru_cache(maxsize=1024)
def phrase(expression: str) -> str:
    """Return what an expression means. "" where no words are known that are surely right.

    :param expression: one that ``parse_cron`` takes
    """
    text = " ".join(expression.lower().split())
    if text.startswith("@every"):
        return f"Every {length(parse_duration(text.removeprefix('@every').strip()))}"
    if text in _NICKNAMES:
        return _NICKNAMES[text]
    fields = text.split(" ")
    if _needs_both_days(fields):
        return ""
    # The library has the seconds first.
    said = fields if len(fields) == _FIELDS else [fields[-1], *fields[:-1]]
    options = Options(
        casing_type=CasingTypeEnum.Sentence,
        day_of_week_start_index_zero=True,
        use_24hour_time_format=True,
        locale_code="en_US",
    )
    try:
        return str(ExpressionDescriptor(" ".join(said), options).get_description())
    except _NO_WORDS:
        return ""


def _needs_both_days(fields: list[str]) -> bool:
    """Return whether the day of the month and that of the week must both fit.

    The library says "or" between the two, which is so only when neither begins with a star.
    """
    days = fields[2], fields[4]
    return all(each not in ("*", "?") for each in days) and any(each[0] == "*" for each in days)
