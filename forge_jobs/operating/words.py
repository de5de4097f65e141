"""Instants, durations, sizes and numbers of jobs as people read them."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from forge_jobs.durations import format_duration
from forge_jobs.model.queues import QueueCounts


def instant(value: datetime | None) -> str:
    """An instant for people: UTC, whole seconds. "" for none."""
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ") if value else ""


def duration(value: timedelta | None) -> str:
    """A duration for people: whole seconds from ten seconds on. "-" for none."""
    if value is None:
        return "-"
    whole = timedelta(seconds=1) if value >= timedelta(seconds=10) else timedelta(milliseconds=1)
    return format_duration(max(value, timedelta(0)) // whole * whole)


def counted(found: Iterable[QueueCounts], status: str) -> str:
    """How many jobs of a status queues have together, as "5,000+" where one has more."""
    each = list(found)
    number = sum(counts.by_status.get(status, 0) for counts in each)
    return f"{number:,}" + "+" * any(status in counts.more for counts in each)


def size(value: int) -> str:
    """Bytes in a unit that suits them."""
    amount, units = float(value), ["B", "KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        units.pop(0)
    return f"{amount:.0f} {units[0]}"
