"""Queues in which jobs of other pods' kinds stand in front."""

from datetime import timedelta

from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Demand
from forge_jobs.storage.protocols import Storage
from tests.support.factories import new_job, register

LONG = timedelta(hours=1)
FEW, MANY, VERY_MANY = 200, 10_000, 50_000
MINE = tuple(f"mine.{number}" for number in range(5))
OTHER = "other"


async def two_pods(storage: Storage) -> PodLease:
    """Return the lease of a pod with some kinds, beside a pod with another kind."""
    await register(storage, kinds=(OTHER,), lease_for=LONG)
    return await register(storage, kinds=MINE, lease_for=LONG)


async def put_behind(storage: Storage, others: int) -> list[str]:
    """Enqueue jobs of each of the pod's kinds behind so many of another, and return the ids."""
    for first in range(0, others, MANY):
        await storage.jobs.enqueue([new_job(kind=OTHER) for _ in range(min(MANY, others - first))])
    mine = [new_job(kind=MINE[number % len(MINE)]) for number in range(10)]
    await storage.jobs.enqueue(mine)
    return [job.id for job in mine]


def demand(limit: int) -> Demand:
    """Of the pod with several kinds, each claim for a worker."""
    workers = tuple(f"w{number}" for number in range(limit))
    return Demand(worker_ids=workers, limit=limit, kinds=frozenset(MINE))
