"""Bounds and cursors of calls that go through many jobs, the same for every store."""

from typing import NamedTuple, get_args

from forge_jobs.errors import InvalidInput
from forge_jobs.model.filters import JobOrder
from forge_jobs.model.ids import JobId, check_job_id

MOST_AT_ONCE = 1000
"""How many jobs one call visits or shows at most, because a visit holds others up all the while."""


WALKED = 50_000
"""Jobs that one call on SQL looks at, to find those that a filter means. They take about 50 ms."""

WALKED_ON_REDIS = 5_000
"""The same on Redis, where all other calls wait meanwhile: many short steps."""


MOST_TO_COUNT = 1_000_000
"""The furthest that a caller may let a count go."""

_ORDERS: tuple[str, ...] = get_args(JobOrder)
_MOST_MICROSECONDS = 2**53


class Place(NamedTuple):
    """Where a job stands in a list.

    :ivar at: the time that the list is in the order of, in microseconds. 0 in a list by ids
    """

    at: int
    id: JobId


def check_limit(limit: int, most: int = MOST_AT_ONCE) -> None:
    """Check the limit of a page.

    :raises InvalidInput: ``limit`` is out of range
    """
    if not isinstance(limit, int) or not 1 <= limit <= most:
        raise InvalidInput("limit", f"is {limit!r}", f"give 1 to {most}")


def check_ended(ended_at_most: int | None) -> None:
    """Check up to how many ended jobs are to be counted.

    :raises InvalidInput: the number is not positive
    """
    if ended_at_most is not None and (not isinstance(ended_at_most, int) or ended_at_most < 1):
        problem = f"is {ended_at_most!r}"
        raise InvalidInput("ended_at_most", problem, "give at least 1, or None for exact counts")


def check_cursor(cursor: str | None) -> JobId | None:
    """Return the cursor as a job id.

    :raises InvalidInput: no page gave this cursor
    """
    if cursor is None:
        return None
    try:
        return check_job_id(cursor, "cursor")
    except InvalidInput:
        raise InvalidInput(
            "cursor", "is not one that a page has given", "pass the cursor of the last page"
        ) from None


def check_at_most(at_most: int) -> None:
    """Check how far a count may go.

    :raises InvalidInput: ``at_most`` is out of range
    """
    if not isinstance(at_most, int) or not 1 <= at_most <= MOST_TO_COUNT:
        raise InvalidInput("at_most", f"is {at_most!r}", f"give 1 to {MOST_TO_COUNT}")


def check_order(order: str) -> None:
    """Check the order of a list.

    :raises InvalidInput: there is no such order
    """
    if order not in _ORDERS:
        raise InvalidInput("order", f"is {order!r}", f"give one of {', '.join(_ORDERS)}")


def cursor_of(order: JobOrder, place: Place) -> str:
    """Return the cursor of a list that goes on behind the place."""
    return place.id if order == "id" else f"{order}.{place.at}.{place.id}"


def check_place(order: JobOrder, cursor: str | None) -> Place | None:
    """Return the place of a cursor of a list by times.

    :raises InvalidInput: no page of this order gave this cursor
    """
    if cursor is None:
        return None
    parts = cursor.split(".") if isinstance(cursor, str) else []
    if len(parts) == 3 and parts[0] == order and parts[1].isascii() and parts[1].isdigit():
        at = int(parts[1][:20])
        if at < _MOST_MICROSECONDS:
            return Place(at, check_cursor(parts[2]) or JobId(""))
    problem = f"is not one that a page in the order {order} has given"
    raise InvalidInput("cursor", problem, "pass the cursor of the last page, with its order")
