"""The calls of a client that list and count jobs."""

from forge_jobs.clients.progress import ProgressCalls
from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.model.filters import MOST_COUNTED, Count, JobFilter, JobOrder, Page


class ListCalls(ProgressCalls):
    """A part of the methods of every client. See ``JobClient``."""

    async def count(
        self,
        which: JobFilter | None = None,
        *,
        at_most: int = MOST_COUNTED,
        cursor: str | None = None,
    ) -> Count:
        """Count matching jobs. The count is exact, or says that more match.

        :param at_most: how far to count, 1 to 1,000,000
        :param cursor: the ``looked_back_to`` of an earlier count, to count older jobs
        """
        return await self._jobs.count(_checked(which), at_most=at_most, cursor=cursor)

    async def list(
        self,
        which: JobFilter | None = None,
        *,
        order: JobOrder = "id",
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page:
        """A page of matching jobs.

        :param order: ``id``: the newest first. ``finished``: only jobs that have ended, the last to
            end first. ``due``: only jobs that wait for their time or for a worker, the earliest due
            time first
        """
        return await self._jobs.list(_checked(which), order=order, cursor=cursor, limit=limit)


def _checked(which: JobFilter | None) -> JobFilter:
    if which is not None and not isinstance(which, JobFilter):
        raise InvalidInput("which", f"is {a_type(which)}", "give JobFilter(...)")
    return which or JobFilter()
