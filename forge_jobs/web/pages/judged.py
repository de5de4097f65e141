"""Problems as pages show them: read for all viewers together, and counted on the tabs."""

import functools
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from forge_jobs.errors import ForgeJobsError
from forge_jobs.operating.access import Access, Right
from forge_jobs.operating.snapshots.shared import Kept, Reader
from forge_jobs.policy.judgement.problems.problem import Code, Problem
from forge_jobs.web.pages.glance import Ended, Glance, ended_of, read_glance

FRESH = 1.0
"""Seconds for which the problems of a page that lists them count as new."""

KNOWN = 10.0
"""Seconds for which the numbers on the tabs count as new."""

GLANCED = 30.0
"""Seconds for which what lies ahead and what is usual count as new."""

_TABS = {"jobs", "errors", "queues", "pods", "cron", "limits", "workflows", "store"}


class Judge:
    """The problems as pages show them, and what was seen of them so far."""

    def __init__(self) -> None:
        self._of: Reader | None = None
        self._found: tuple[Problem, ...] = ()
        self._glance: Kept[Glance] | None = None
        self._glance_of: Reader | None = None
        self.ended: Ended | None = None
        """The last problem that this process has seen end. None while no viewer has seen one."""

    async def problems(
        self, reader: Reader, at: datetime, age: float | None = None
    ) -> Sequence[Problem]:
        """Return what is wrong, as read no longer than ``age`` or ``FRESH`` seconds ago.

        :param at: the store's time
        :raises Unavailable: the store is silent, or the part with pods and schedules
        """
        found = tuple(await reader.problems(FRESH if age is None else age))
        if self._of is reader:
            self.ended = ended_of(self._found, found, at) or self.ended
        self._of, self._found = reader, found
        return found

    async def glance(self, reader: Reader) -> Glance:
        """Return what lies ahead and what is usual, as read no longer than ``GLANCED`` seconds ago.

        :raises Unavailable: the store is silent
        """
        if self._glance is None or self._glance_of is not reader:
            self._glance = Kept(reader.clock, functools.partial(read_glance, reader))
            self._glance_of = reader
        return await self._glance.get(GLANCED)

    async def badges(self, reader: Reader, access: Access, at: datetime) -> dict[str, int]:
        """Return how many problems the page of each tab solves. Nothing where that is not known."""
        if not access.has(Right.QUEUES) or not access.has(Right.READ):
            return {}
        try:
            found = await self.problems(reader, at, KNOWN)
        except ForgeJobsError:
            return {}
        counted = Counter(problem.page.strip("/").split("/")[0].split("?")[0] for problem in found)
        return {tab: count for tab, count in counted.items() if tab in _TABS}


class Remedy(Struct, frozen=True, kw_only=True):
    """An action on the queue of a problem.

    :param operation: of the table of operations
    """

    operation: str
    label: str


REMEDIES = {
    Code.PAUSED_WITH_WORK: Remedy(operation="resume_queue", label="Resume"),
    Code.COOLING_WITH_WORK: Remedy(operation="end_cooldown", label="End the cool-down of"),
    Code.ERROR_BURST: Remedy(operation="pause_queue", label="Pause"),
    Code.UNSERVED_QUEUE: Remedy(operation="pause_queue", label="Pause"),
}
"""Actions that are safe whenever the problem is there."""


def remedy_of(problem: Problem, access: Access) -> Remedy | None:
    """Return the action that a problem offers to a caller who may take it."""
    remedy = REMEDIES.get(problem.code)
    if remedy is None or not problem.queue or not access.allows(remedy.operation):
        return None
    return remedy
