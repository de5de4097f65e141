"""Reads what a scrape needs: at most five calls of a store, however many queues there are."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from forge_jobs.model.letters.outbox import OutboxState
from forge_jobs.model.looks import FleetLook, LimitLoad
from forge_jobs.model.processes import PodState, RateGauge
from forge_jobs.model.queues import QueueCounts, QueueState
from forge_jobs.model.series import FlowTotal
from forge_jobs.operating.snapshots.fleet import busiest, is_live
from forge_jobs.operating.snapshots.objectives import ObjectiveView, read_objectives
from forge_jobs.operating.snapshots.reading import Aside, Looked, read_looked
from forge_jobs.operating.snapshots.shared import Reader
from forge_jobs.policy.judgement.problems.problem import Problem
from forge_jobs.policy.judgement.problems.snapshot import LimitSeen, StruckSeen

TURN_EVERY = 10.0
"""Seconds between two turns, at least. Of three turns each scrape takes the oldest."""

OLDEST = 60.0
"""Seconds after which a turn is due in any case, when scrapes are seldom."""


MOST_LABELLED = 200
"""Rate limits whose tokens have samples: those with most, by name where they are as many."""


class Scrape(Struct, frozen=True, kw_only=True):
    """All that one scrape tells. Queues whose part of the store is silent are left out."""

    queues: Sequence[QueueState]
    counts: Mapping[str, QueueCounts]
    pods: Sequence[PodState]
    totals: Sequence[FlowTotal]
    problems: Sequence[Problem]
    objectives: Sequence[ObjectiveView] = ()
    struck: Sequence[StruckSeen] = ()
    """Jobs that strikes hold, as of the last look at problems."""
    limits: Sequence[LimitLoad] = ()
    """Limits by key, at most a minute old."""
    rates: Sequence[LimitSeen] = ()
    """Rate limits for which jobs wait, at most a minute old."""
    tokens: Sequence[RateGauge] = ()
    """Tokens of rate limits in the last minute, of the 200 limits with most."""
    judged_at: datetime | None = None
    """The store's time when ``limits``, ``rates`` and ``problems`` were read."""
    outboxes: Mapping[str, OutboxState] = {}
    """Outboxes that this program relays, by the name of the destination."""

    @property
    def live_pods(self) -> list[PodState]:
        """The pods with a live lease."""
        return [pod for pod in self.pods if is_live(pod)]

    def granted(self, queue: str) -> int:
        """The slots of a queue that live pods have."""
        return sum(pod.slots[queue].grant for pod in self.live_pods if queue in pod.slots)


class Scraper:
    """Reads a store for scrapes, in at most five calls each where one comes every 20 seconds.

    Each scrape reads the counters. Problems and objectives need more, so each scrape reads a third
    of that in turn. The first scrape reads all, and so does one that comes after a minute. Belongs
    to one event loop.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._looked: Looked | None = None
        self._objectives: Sequence[ObjectiveView] = ()
        self._aside: Aside | None = None
        self._read_at = [float("-inf")] * 3

    async def read(self) -> Scrape:
        """Read what a scrape tells.

        :raises Unavailable: the store is silent, or the part with pods
        """
        fleet, counts = await self._reader.fleet(), await self._reader.counts()
        totals = await self._reader.storage.jobs.flow_totals()
        await self._take_turns(fleet, counts)
        looked = self._looked
        return Scrape(
            queues=fleet.queues,
            counts=counts,
            pods=fleet.pods,
            totals=totals,
            problems=looked.problems if looked else (),
            objectives=self._objectives,
            limits=looked.loads if looked else (),
            rates=looked.snapshot.limits if looked else (),
            tokens=busiest((each.scope for each in fleet.limits), fleet.pods, MOST_LABELLED),
            judged_at=looked.snapshot.now if looked else None,
            struck=looked.snapshot.struck if looked else (),
        )

    async def _take_turns(self, fleet: FleetLook, counts: Mapping[str, QueueCounts]) -> None:
        moment = self._reader.clock()
        turns = (self._read_aside, self._judge, self._read_objectives)
        due = [at for at in range(len(turns)) if moment - self._read_at[at] >= OLDEST]
        if not due and moment - max(self._read_at) >= TURN_EVERY:
            due = [self._read_at.index(min(self._read_at))]
        for at in due:
            await turns[at](fleet, counts)
            self._read_at[at] = moment

    async def _read_aside(self, fleet: FleetLook, _: Mapping[str, QueueCounts]) -> None:
        self._aside = await self._reader.aside()

    async def _judge(self, fleet: FleetLook, counts: Mapping[str, QueueCounts]) -> None:
        aside = self._aside or await self._reader.aside()
        report = await self._reader.report(float("inf"))
        storage = self._reader.storage
        self._looked = await read_looked(storage, fleet, counts, aside, report)

    async def _read_objectives(self, fleet: FleetLook, counts: Mapping[str, QueueCounts]) -> None:
        await self._reader.report()
        self._objectives = await read_objectives(
            self._reader.storage, fleet.now, fleet.queues, counts, fleet.pods
        )
