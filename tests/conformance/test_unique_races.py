"""Sixteen producers on one key, in each mode, while the key's jobs run and end."""

from collections import Counter
from datetime import timedelta

import pytest

from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import ACTIVE, EnqueueOutcome, NewJob, Unique
from forge_jobs.model.transitions import Delivery, Finalization
from forge_jobs.model.unique.keys import UniqueMode
from forge_jobs.storage.protocols import Storage
from tests.conformance.test_races import at_once, bundles
from tests.support.factories import claim, counters, done, enqueue_patiently, new_job, register

__all__ = ["bundles"]

pytestmark = pytest.mark.anyio
LONG = timedelta(days=1)


def request(mode: UniqueMode, number: int) -> NewJob:
    payload = f'{{"n":{number}}}'
    if mode == "cooldown":
        return new_job(unique=Unique("k", mode, LONG), payload=payload)
    return new_job(unique=Unique("k", mode), payload=payload)


@pytest.mark.parametrize("mode", ["replace", "cooldown", "keep-last"])
async def test_sixteen_producers_while_jobs_run(bundles: list[Storage], mode: UniqueMode) -> None:
    outcomes: list[EnqueueOutcome] = []
    producing = 16
    most_running = 0

    async def produce(number: int) -> None:
        nonlocal producing
        for turn in range(12):
            one = request(mode, number * 100 + turn)
            outcomes.extend(await enqueue_patiently(bundles[number % 3], [one]))
        producing -= 1

    async def consume() -> None:
        nonlocal most_running
        storage = bundles[0]
        lease = await register(storage)
        while True:
            last = not producing
            claimed = await claim(storage, lease, limit=5)
            most_running = max(most_running, len(claimed))
            for each in claimed:
                while (await storage.jobs.finalize([Finalization(each.claim, done())])) == [None]:
                    """A producer has locked the job."""
            news = await storage.jobs.handovers(100)
            await storage.jobs.deliver([Delivery(one, "settle") for one in news])
            active = await storage.jobs.list(JobFilter(statuses=tuple(ACTIVE)))
            assert len(active.jobs) <= 2
            if last and not claimed and not news:
                return

    await at_once(*(lambda n=n: produce(n) for n in range(16)), consume)
    assert most_running == 1
    kinds = Counter(
        "dropped" if one.deduplicated else "replaced" if one.replaced else "stored"
        for one in outcomes
    )
    counted = await counters(bundles[0])
    assert kinds["stored"] == counted["enqueued"] == counted["succeeded"]
    assert sum(kinds.values()) == 16 * 12
    jobs = (await bundles[0].jobs.list(JobFilter(), limit=1_000)).jobs
    assert {one.job_id for one in outcomes} == {job.id for job in jobs}
    if mode == "cooldown":
        assert kinds == {"stored": 1, "dropped": 16 * 12 - 1}
    if mode == "keep-last":
        assert not kinds["dropped"]
