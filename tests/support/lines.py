"""Sequences of jobs in tests of stores."""

from forge_jobs.model.edges import EdgeState
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import ClaimedJob, Line
from forge_jobs.model.processes import PodLease
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from tests.support.factories import claim, done, finish, new_job


async def in_line(storage: Storage, number: int, rule: str = "wait", key: str = "k") -> list[JobId]:
    """Enqueue jobs of one sequence in one call."""
    line = Line(key, rule)  # type: ignore[arg-type]
    jobs = [new_job(sequence=line) for _ in range(number)]
    await storage.jobs.enqueue(jobs)
    return [job.id for job in jobs]


async def tell(storage: Storage) -> None:
    """Deliver all handovers, and those that come of them."""
    while found := await storage.jobs.handovers(100):
        await storage.jobs.deliver([delivery(each) for each in found])


async def claim_due(storage: Storage, lease: PodLease) -> list[ClaimedJob]:
    """Claim all that is due once ends have been handed over."""
    await tell(storage)
    return await claim(storage, lease, limit=100)


async def edges_of(storage: Storage, job_id: JobId) -> dict[JobId, EdgeState]:
    kin = await storage.jobs.kin([job_id])
    return {each.id: each.edge for each in kin[job_id].parents}


async def order_of(storage: Storage, lease: PodLease) -> list[JobId]:
    """Run all that may run, one at a time, and return the order. Never are two due at once."""
    ran: list[JobId] = []
    while claimed := await claim_due(storage, lease):
        [job] = claimed
        await finish(storage, job, done())
        ran.append(job.claim.job_id)
    return ran
