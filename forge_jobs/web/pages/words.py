"""Numbers, instants and states as the pages show them."""

from datetime import UTC, datetime, timedelta

import msgspec
from markupsafe import Markup, escape

from forge_jobs.model.jobs import JobStatus
from forge_jobs.operating import words

_STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))

NONE = "\u2013"
"""Stands for a value that is not there."""

STATUS_CLASS = {
    JobStatus.BLOCKED: "idle",
    JobStatus.PENDING: "idle",
    JobStatus.IN_PROGRESS: "run",
    JobStatus.FAILED: "warn",
    JobStatus.DONE: "good",
    JobStatus.DEAD: "bad",
    JobStatus.CANCELLED: "",
}
"""The mark of a status."""

STATUS_WORD = {
    JobStatus.BLOCKED: "blocked",
    JobStatus.PENDING: "waiting",
    JobStatus.IN_PROGRESS: "running",
    JobStatus.FAILED: "retrying",
    JobStatus.DONE: "done",
    JobStatus.DEAD: "dead",
    JobStatus.CANCELLED: "cancelled",
}


def number(value: float | None) -> str:
    """A number with thousands apart. "-" for none."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def length(value: timedelta | float | None) -> str:
    """A duration in at most two units. "-" for none."""
    if value is None:
        return NONE
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if 0 < seconds < 0.001:
        return "<1 ms"
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    parts: list[str] = []
    for step, unit in _STEPS:
        count, whole = divmod(whole, step)
        if count and len(parts) < 2:
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts)


def when(at: datetime | None, now: datetime) -> Markup:
    """An instant relative to now, with the exact one on hover and for machines."""
    if at is None:
        return Markup(NONE)
    away = at - now
    if abs(away) < timedelta(seconds=1):
        words = "now"
    elif away > timedelta(0):
        words = f"in {length(away)}"
    else:
        words = f"{length(-away)} ago"
    exact = at.astimezone(UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        exact.isoformat(), exact.strftime("%Y-%m-%d %H:%M:%S UTC"), words
    )


def exactly(at: datetime) -> Markup:
    """An instant in full, UTC, which a script may show in another zone."""
    return Markup('<time datetime="{}">{}</time>').format(
        at.astimezone(UTC).isoformat(), moment(at)
    )


def moment(at: datetime | None) -> str:
    """An instant in full, UTC."""
    return NONE if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def size(value: int | None) -> str:
    """Bytes in a unit that suits them."""
    return NONE if value is None else words.size(value)


def share(value: float | None) -> str:
    """A share of all. "no job" for none."""
    return "no job" if value is None else f"{value:.1%}".replace("%", " %")


def percent(value: float) -> str:
    """A share of all in whole percents."""
    return f"{value:.0%}".replace("%", " %")


def state(status: JobStatus) -> Markup:
    """The status of a job with its mark."""
    return Markup('<span class="state {}">{}</span>').format(
        STATUS_CLASS.get(status, ""), escape(STATUS_WORD.get(status, status))
    )


def term(name: str, value: str) -> str:
    """Return a term of the filter language, quoted where needed."""
    plain = value and all(each.isalnum() or each in "_-./@" for each in value)
    return f"{name}:{value}" if plain else f"{name}:{msgspec.json.encode(value).decode()}"


def pretty(text: str) -> str:
    """Return JSON with one value a line and every number as written. Other texts stay."""
    try:
        return msgspec.json.format(text, indent=2)
    except msgspec.DecodeError:
        return text or "not kept"
