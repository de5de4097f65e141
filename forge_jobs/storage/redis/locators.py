"""Locators: in which queue a job is stored. One without a job means nothing."""

from collections.abc import Iterable, Mapping

from forge_jobs.model.ids import JobId
from forge_jobs.storage.redis.database import Database


async def locate(db: Database, ids: Iterable[JobId]) -> dict[JobId, str]:
    """The queue of each id that has a locator."""
    keys: dict[str, list[JobId]] = {}
    for job_id in dict.fromkeys(ids):
        keys.setdefault(db.keys.locators(job_id), []).append(job_id)
    replies = await db.commands([("HMGET", key, *found) for key, found in keys.items()])
    return {
        job_id: queue_in(value)
        for found, values in zip(keys.values(), replies, strict=True)
        for job_id, value in zip(found, values, strict=True)
        if value is not None
    }


async def locate_by_queue(db: Database, ids: Iterable[JobId]) -> dict[str, list[JobId]]:
    """The bases of the queues that the ids are in, with their ids, in order of both."""
    found: dict[str, list[JobId]] = {}
    located: Mapping[JobId, str] = await locate(db, ids)
    for job_id, queue in located.items():
        found.setdefault(db.keys.queue(queue), []).append(job_id)
    return found


def queue_in(value: bytes) -> str:
    """The queue that a locator names."""
    return value.partition(b"\n")[0].decode()


def mark_in(value: str) -> int:
    """How often the job has been moved to another queue."""
    return int((*value.split("\n"), "0")[2] or 0)
