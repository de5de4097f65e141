"""Locators: in which queue a job is stored. One without a job means nothing."""

from collections.abc import Iterable, Mapping

from forge_jobs.errors import Unavailable
from forge_jobs.model.ids import JobId
from forge_jobs.storage.redis.database import Database


async def locate(db: Database, ids: Iterable[JobId]) -> dict[JobId, str]:
    """The queue of each id that has a locator."""
    keys = _by_hash(db, ids)
    return _queues(keys, await db.commands([("HMGET", key, *found) for key, found in keys.items()]))


async def locate_some(db: Database, ids: Iterable[JobId]) -> tuple[dict[JobId, str], set[JobId]]:
    """:func:`locate` as far as there are answers, and the ids of which nothing is known."""
    keys = _by_hash(db, ids)
    asked = [("HMGET", key, *found) for key, found in keys.items()]
    replies = await db.commands(asked, some=True)
    heard = dict(zip(keys, replies, strict=True))
    silent = {key for key, reply in heard.items() if isinstance(reply, Unavailable)}
    unknown = {job_id for key in silent for job_id in keys[key]}
    found = {key: ids for key, ids in keys.items() if key not in silent}
    return _queues(found, [heard[key] for key in found]), unknown


def _by_hash(db: Database, ids: Iterable[JobId]) -> dict[str, list[JobId]]:
    keys: dict[str, list[JobId]] = {}
    for job_id in dict.fromkeys(ids):
        keys.setdefault(db.keys.locators(job_id), []).append(job_id)
    return keys


def _queues(keys: Mapping[str, list[JobId]], replies: Iterable[list[bytes]]) -> dict[JobId, str]:
    return {
        job_id: queue_in(value)
        for found, values in zip(keys.values(), replies, strict=True)
        for job_id, value in zip(found, values, strict=True)
        if value is not None
    }


async def locate_by_queue(db: Database, ids: Iterable[JobId]) -> dict[str, list[JobId]]:
    """The bases of the queues that the ids are in, with their ids, in order of both."""
    return by_base(db, await locate(db, ids))


def by_base(db: Database, located: Mapping[JobId, str]) -> dict[str, list[JobId]]:
    """The same of ids whose queues are known."""
    found: dict[str, list[JobId]] = {}
    for job_id, queue in located.items():
        found.setdefault(db.keys.queue(queue), []).append(job_id)
    return found


def queue_in(value: bytes) -> str:
    """The queue that a locator names."""
    return value.partition(b"\n")[0].decode()


def mark_in(value: str) -> int:
    """How often the job has been moved to another queue."""
    return int((*value.split("\n"), "0")[2] or 0)
