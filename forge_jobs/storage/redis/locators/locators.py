"""Locators: in which queue a job is stored. One without a job means nothing."""

from collections.abc import Iterable, Mapping, Sequence

from forge_jobs.errors import Unavailable
from forge_jobs.model.ids import JobId
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.places import by_place
from forge_jobs.storage.redis.driver.errors import WrongType
from forge_jobs.storage.redis.locators.moving import look_again, refresh


async def locate(db: Database, ids: Iterable[JobId]) -> dict[JobId, str]:
    """The queue of each id that has a locator.

    :raises Unavailable: of one nothing is known
    """
    return (await _locate(db, ids, some=False))[0]


async def locate_some(db: Database, ids: Iterable[JobId]) -> tuple[dict[JobId, str], set[JobId]]:
    """:func:`locate` as far as there are answers, and the ids of which nothing is known."""
    return await _locate(db, ids, some=True)


async def _locate(
    db: Database, ids: Iterable[JobId], *, some: bool
) -> tuple[dict[JobId, str], set[JobId]]:
    wanted = list(dict.fromkeys(ids))
    await refresh(db)
    while True:
        seen = db.places.states
        try:
            # In this order: what is moved away in between is found there.
            before, silent = await read_sources(db, wanted, some=some)
            if db.places.states != seen:
                continue
            found, unknown = await _read(db, by_place(db.places, wanted), some=some)
        except WrongType:
            await look_again(db, seen)
        else:
            unknown |= silent - found.keys()
            located = {job_id: before[job_id] for job_id in before if job_id not in unknown}
            queues = {job_id: queue_in(value) for job_id, value in (located | found).items()}
            return {JobId(job_id): queue for job_id, queue in queues.items()}, {
                JobId(job_id) for job_id in unknown
            }


async def read_sources(
    db: Database, ids: Iterable[str], *, some: bool
) -> tuple[dict[str, bytes], set[str]]:
    """Return the locators that have not been moved yet, of ids whose hash is on the way, and the
    ids of which that is not known."""
    sources: dict[str, list[str]] = {}
    for job_id in ids:
        if source := db.places.source(job_id):
            sources.setdefault(source, []).append(job_id)
    return await _read(db, sources, some=some)


async def _read(
    db: Database, keys: Mapping[str, Sequence[str]], *, some: bool
) -> tuple[dict[str, bytes], set[str]]:
    asked = [("HMGET", key, *found) for key, found in keys.items()]
    replies = await db.commands(asked, some=some)
    found: dict[str, bytes] = {}
    unknown: set[str] = set()
    for ids, reply in zip(keys.values(), replies, strict=True):
        if isinstance(reply, Unavailable):
            unknown.update(ids)
        else:
            found.update(
                (job_id, value)
                for job_id, value in zip(ids, reply, strict=True)
                if value is not None
            )
    return found, unknown


def by_base(db: Database, located: Mapping[JobId, str]) -> dict[str, list[JobId]]:
    """The bases of queues, with the ids that are there, in order of both."""
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
