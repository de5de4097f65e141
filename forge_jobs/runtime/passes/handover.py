"""Tells the children of ended jobs that their parents have ended."""

from forge_jobs import stop_points
from forge_jobs.model.transitions import Handover
from forge_jobs.policy.dependencies import delivery
from forge_jobs.runtime.passes.apart import Apart
from forge_jobs.storage.protocols import JobStore

HANDOVER_BATCH = 500
"""Bounds how long one delivery holds the store's write lock."""


async def hand_over_once(jobs: JobStore, apart: Apart | None = None) -> int:
    """Deliver all news that wait, and the news that arise from them; how many were applied.

    A chain of cancelled jobs, however deep, is settled by one pass. Any number of pods may do
    this at the same time: each piece of news is applied once.

    :param apart: kept from pass to pass; what it has set aside keeps no other news waiting
    """
    apart = Apart("news for a child") if apart is None else apart
    applied = 0
    tried: set[str] = set()
    while True:
        aside = apart.waiting
        limit = HANDOVER_BATCH + len(tried) + len(aside)
        found = await jobs.handovers(limit)
        # What was delivered and is there again waits for somebody's transaction: look behind it.
        waiting = {
            handover.id for handover in found if handover.id in tried or _key(handover) in aside
        }
        batch = [handover for handover in found if handover.id not in waiting][:HANDOVER_BATCH]
        if not batch:
            return applied
        if stop_points.ARMED:
            await stop_points.reach("handover:read")
        deliveries = [delivery(handover) for handover in batch]
        applied += sum(await apart.send(deliveries, jobs.deliver, lambda each: _key(each.handover)))
        if stop_points.ARMED:
            await stop_points.reach("handover:committed")
        tried = waiting.union(handover.id for handover in batch)


def _key(handover: Handover) -> str:
    """What names the news in the log too."""
    return f"{handover.child_id} of its parent {handover.parent_id}"
