"""Reads what a scrape needs: four calls of a store, however many queues there are."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from forge_jobs.clock import SystemClock
from forge_jobs.model.processes import PodState
from forge_jobs.model.queues import ENDED_COUNTED, QueueCounts, QueueState
from forge_jobs.model.series import FlowTotal
from forge_jobs.operating.snapshots.fleet import is_live
from forge_jobs.operating.snapshots.objectives import ObjectiveView, read_objectives
from forge_jobs.operating.snapshots.reading import problems
from forge_jobs.policy.judgement.problems.problem import Problem
from forge_jobs.storage.protocols import Storage

JUDGED_EVERY = 60.0
"""Seconds between two readings of the problems, which take more calls than all the rest."""


class Scrape(Struct, frozen=True, kw_only=True):
    """All that one scrape tells. Queues whose part of the store is silent are left out."""

    queues: Sequence[QueueState]
    counts: Mapping[str, QueueCounts]
    pods: Sequence[PodState]
    totals: Sequence[FlowTotal]
    problems: Sequence[Problem]
    objectives: Sequence[ObjectiveView] = ()

    @property
    def live_pods(self) -> list[PodState]:
        """The pods with a live lease."""
        return [pod for pod in self.pods if is_live(pod)]

    def granted(self, queue: str) -> int:
        """The slots of a queue that live pods have."""
        return sum(pod.slots[queue].grant for pod in self.live_pods if queue in pod.slots)


class Scraper:
    """Reads a store for scrapes. Belongs to one event loop."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._clock = SystemClock()
        self._problems: Sequence[Problem] = ()
        self._objectives: Sequence[ObjectiveView] = ()
        self._judged_at: float | None = None

    async def read(self) -> Scrape:
        """Read what a scrape tells.

        :raises Unavailable: the store is silent, or the part with pods
        """
        storage = self._storage
        queues = await storage.config.queues()
        counts = await storage.jobs.counts(ended_at_most=ENDED_COUNTED)
        pods = await storage.procs.pods()
        totals = await storage.jobs.flow_totals()
        return Scrape(
            queues=queues,
            counts=counts,
            pods=pods,
            totals=totals,
            problems=await self._judged(queues, counts, pods),
            objectives=self._objectives,
        )

    async def _judged(
        self,
        queues: Sequence[QueueState],
        counts: Mapping[str, QueueCounts],
        pods: Sequence[PodState],
    ) -> Sequence[Problem]:
        now = self._clock.elapsed()
        if self._judged_at is None or now - self._judged_at >= JUDGED_EVERY:
            self._problems = await problems(self._storage)
            self._objectives = await read_objectives(self._storage, queues, counts, pods)
            self._judged_at = now
        return self._problems
