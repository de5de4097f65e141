"""Job filters as scripts take them."""

from datetime import datetime

from forge_jobs.clock import to_us
from forge_jobs.model.filters import JobFilter

FilterParts = tuple[object, ...]


def filter_parts(which: JobFilter) -> FilterParts:
    """What ``lua/lib/filters.lua`` takes: all but the ids and the queues."""
    return (
        which.kinds,
        tuple(status.value for status in which.statuses),
        tuple(cause.value for cause in which.causes),
        _or_false(which.tag),
        _or_false(which.unique_key),
        _or_false(which.schedule),
        _instant(which.enqueued_before),
        _instant(which.enqueued_after),
    )


def _or_false(text: str | None) -> object:
    return False if text is None else text


def _instant(value: datetime | None) -> object:
    return False if value is None else to_us(value)
