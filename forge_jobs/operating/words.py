"""Instants and durations as people read them."""

from datetime import UTC, datetime, timedelta

from forge_jobs.durations import format_duration


def instant(value: datetime | None) -> str:
    """An instant for people: UTC, whole seconds. "" for none."""
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ") if value else ""


def duration(value: timedelta | None) -> str:
    """A duration for people: whole seconds from ten seconds on. "-" for none."""
    if value is None:
        return "-"
    whole = timedelta(seconds=1) if value >= timedelta(seconds=10) else timedelta(milliseconds=1)
    return format_duration(max(value, timedelta(0)) // whole * whole)
