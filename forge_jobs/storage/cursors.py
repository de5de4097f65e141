"""Bounds and cursors of calls that go through many jobs, the same for every store."""

from forge_jobs.errors import InvalidInput
from forge_jobs.model.ids import JobId, check_job_id

MOST_AT_ONCE = 1000
"""How many jobs one call visits or shows at most, because a visit holds others up all the while."""


WALKED = 50_000
"""Jobs that one call on SQL looks at, to find those that a filter means. They take about 50 ms."""

WALKED_ON_REDIS = 5_000
"""The same on Redis, where all other calls wait meanwhile: many short steps."""


def check_limit(limit: int) -> None:
    """Check the limit of a page.

    :raises InvalidInput: ``limit`` is out of range
    """
    if not isinstance(limit, int) or not 1 <= limit <= MOST_AT_ONCE:
        raise InvalidInput("limit", f"is {limit!r}", f"give 1 to {MOST_AT_ONCE}")


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
