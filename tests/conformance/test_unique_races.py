"""Sixteen producers on one key, in each mode, while the key's jobs run and end."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Conflict
from forge_jobs.model.filters import JobFilter, JobSummary
from forge_jobs.model.jobs import ACTIVE, EnqueueOutcome, NewJob, Unique
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Delivery, Finalization
from forge_jobs.model.unique.keys import UniqueMode
from forge_jobs.storage.protocols import Storage
from tests.conformance.test_races import at_once, bundles
from tests.support.factories import (
    DAY,
    claim,
    counters,
    done,
    enqueue_patiently,
    new_job,
    register,
)
from tests.support.keyed import MODES

__all__ = ["bundles"]

pytestmark = pytest.mark.anyio

PRODUCERS, TURNS = 16, 12
WINDOW = timedelta(milliseconds=1)


def request(mode: UniqueMode, number: int) -> NewJob:
    payload = f'{{"n":{number}}}'
    if mode == "cooldown":
        return new_job(unique=Unique("k", mode, DAY), payload=payload)
    if mode == "debounce":
        return new_job(unique=Unique("k", mode, WINDOW), delay=WINDOW, payload=payload)
    return new_job(unique=Unique("k", mode), payload=payload)


class Race:
    """Producers that ask at the same time, and a pod that runs what they have stored."""

    def __init__(self, bundles: Sequence[Storage], clock: ManualClock) -> None:
        self._bundles = bundles
        self._clock = clock
        self._producing = PRODUCERS
        self.told: Counter[str] = Counter()
        self.ids: set[str] = set()
        self.ran: list[str] = []

    async def produce(self, producer: int, mode: UniqueMode) -> None:
        for turn in range(TURNS):
            one = request(mode, producer * 100 + turn)
            try:
                outcomes = await enqueue_patiently(self._bundles[producer % 3], [one])
            except Conflict:
                self.told["refused"] += 1
            else:
                self._note(outcomes)
        self._producing -= 1

    def _note(self, outcomes: Sequence[EnqueueOutcome]) -> None:
        for one in outcomes:
            word = "dropped" if one.deduplicated else "replaced" if one.replaced else "stored"
            self.told[word] += 1
            self.ids.add(one.job_id)

    async def consume(self) -> None:
        lease = await register(self._bundles[0], lease_for=DAY)
        while True:
            is_last = not self._producing
            is_idle = await self._run(lease)
            self._clock.advance(WINDOW)
            if is_last and is_idle and not await self.active():
                return

    async def _run(self, lease: PodLease) -> bool:
        """Run what is due, and return whether nothing was."""
        storage = self._bundles[0]
        claimed = await claim(storage, lease, limit=5)
        assert len(claimed) <= 1, "two jobs with the key run at once"
        for each in claimed:
            self.ran.append(each.payload)
            while (await storage.jobs.finalize([Finalization(each.claim, done())])) == [None]:
                """A producer has locked the job."""
        news = await storage.jobs.handovers(100)
        await storage.jobs.deliver([Delivery(one, "settle") for one in news])
        assert len(await self.active()) <= 2
        return not claimed and not news

    async def active(self) -> Sequence[JobSummary]:
        page = await self._bundles[0].jobs.list(JobFilter(statuses=tuple(ACTIVE)))
        return page.jobs


@pytest.mark.daily("sqlite", "redis", "postgres-keep", "postgres-replace")
@pytest.mark.parametrize("mode", MODES)
async def test_sixteen_producers_while_jobs_run(
    bundles: list[Storage], clock: ManualClock, mode: UniqueMode
) -> None:
    race = Race(bundles, clock)
    producers = (lambda n=n: race.produce(n, mode) for n in range(PRODUCERS))
    await at_once(*producers, race.consume)
    told, counted = race.told, await counters(bundles[0])
    assert told["stored"] == counted["enqueued"] == counted["succeeded"] == len(race.ran)
    assert sum(told.values()) == PRODUCERS * TURNS
    jobs = (await bundles[0].jobs.list(JobFilter(), limit=1_000)).jobs
    assert race.ids == {job.id for job in jobs}
    assert not told["refused"] or mode == "error"
    assert not told["replaced"] or mode in ("replace", "debounce", "keep-last")
    if mode == "cooldown":
        assert told == {"stored": 1, "dropped": PRODUCERS * TURNS - 1}
    if mode in ("debounce", "keep-last"):
        # The request that came last of all is the last one of its producer.
        assert not told["dropped"]
        assert race.ran[-1] in {f'{{"n":{n * 100 + TURNS - 1}}}' for n in range(PRODUCERS)}
