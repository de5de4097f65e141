"""Records what waits for each queue, once a minute, by the pod that leads."""

from datetime import timedelta

from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.series import Depth
from forge_jobs.storage.protocols import JobStore, ProcStore


async def record_depths_once(jobs: JobStore, procs: ProcStore) -> int:
    """Record the depth of each queue that answers, and return of how many queues.

    Three calls, however many queues there are.

    :raises StorageError: the store did not answer, or did not take the depths
    """
    counts = await jobs.counts(ended_at_most=1)
    allocations = {each.queue: each for each in await procs.allocations()}
    depths: dict[str, Depth] = {}
    for queue, found in counts.items():
        allocation = allocations.get(queue)
        slots = () if allocation is None else allocation.pods.values()
        age = found.oldest_due_for
        depths[queue] = Depth(
            due=found.due,
            oldest_due_for=None if age is None else max(age, timedelta(0)),
            granted=sum(each.grant for each in slots),
            running=found.by_status.get(JobStatus.IN_PROGRESS, 0),
            max_workers=0 if allocation is None else allocation.max_workers,
        )
    await jobs.record_depths(depths)
    return len(depths)
