"""Problems as pages show them: read for all viewers together, and counted on the tabs."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from forge_jobs.clock import SystemClock
from forge_jobs.errors import ForgeJobsError
from forge_jobs.operating.access import Access, Right
from forge_jobs.operating.snapshots.reading import problems
from forge_jobs.policy.judgement.problems.problem import Code, Problem
from forge_jobs.storage.protocols import Storage
from forge_jobs.web.pages.glance import Ended, Glance, ended_of, read_glance

FRESH = 1.0
"""Seconds for which the problems of a page that lists them count as new."""

KNOWN = 10.0
"""Seconds for which the numbers on the tabs count as new."""

GLANCED = 30.0
"""Seconds for which what lies ahead and what is usual count as new."""

_TABS = {"jobs", "errors", "queues", "pods", "cron", "limits", "workflows", "store"}


class Judge:
    """Reads the problems of a store at most once a second, however many look."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._of: Storage | None = None
        self._found: tuple[Problem, ...] = ()
        self._at = 0.0
        self._glance: Glance | None = None
        self._glance_of: Storage | None = None
        self._glance_at = 0.0
        self.ended: Ended | None = None
        """The last problem that this process has seen end. None while no viewer has seen one."""

    async def problems(
        self, storage: Storage, at: datetime, age: float | None = None
    ) -> Sequence[Problem]:
        """Return what is wrong, as read no longer than ``age`` or ``FRESH`` seconds ago.

        :param at: the store's time
        :raises Unavailable: the store is silent, or the part with pods and schedules
        """
        now = self._clock.elapsed()
        if self._of is not storage or now - self._at >= (FRESH if age is None else age):
            found = await problems(storage)
            if self._of is storage:
                self.ended = ended_of(self._found, found, at) or self.ended
            self._found = found
            self._of, self._at = storage, now
        return self._found

    async def glance(self, storage: Storage, at: datetime) -> Glance:
        """Return what lies ahead and what is usual, as read no longer than ``GLANCED`` seconds ago.

        :param at: the store's time
        :raises Unavailable: the store is silent
        """
        now = self._clock.elapsed()
        if (
            self._glance is None
            or self._glance_of is not storage
            or now - self._glance_at >= GLANCED
        ):
            self._glance = await read_glance(storage, at)
            self._glance_of, self._glance_at = storage, now
        return self._glance

    async def badges(self, storage: Storage, access: Access, at: datetime) -> dict[str, int]:
        """Return how many problems the page of each tab solves. Nothing where that is not known."""
        if not access.has(Right.QUEUES) or not access.has(Right.READ):
            return {}
        try:
            found = await self.problems(storage, at, KNOWN)
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
