"""Counts of matching jobs, by the sizes of lists where these answer, else by a bounded walk."""

import msgspec

from forge_jobs.model.filters import Count, JobFilter
from forge_jobs.storage.cursors import check_at_most, check_cursor
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.scripts import request_of
from forge_jobs.storage.redis.jobs.filters import filter_parts, meant_queues, newest
from forge_jobs.storage.redis.keys import queue_of

_LISTED = ("kinds", "statuses", "tag", "unique_key", "schedule")
"""The parts of a filter of which each value has a list."""

_ANY = JobFilter()


async def count_jobs(db: Database, which: JobFilter, at_most: int, cursor: str | None) -> Count:
    """See ``JobStore.count``."""
    check_at_most(at_most)
    before = check_cursor(cursor) or ""
    if not before and _is_listed(which):
        return await _by_sizes(db, which, at_most)
    found, looked_at, silent = await newest(db, which, before, at_most + 1)
    silent_queues = tuple(sorted(silent))
    if len(found) > at_most:
        return Count(at_most, is_more=True, silent=silent_queues)
    return Count(len(found), looked_back_to=looked_at, silent=silent_queues)


def _is_listed(which: JobFilter) -> bool:
    """Return whether each job of some lists matches, and no other."""
    given = [name for name in _LISTED if getattr(which, name)]
    left = {name: getattr(_ANY, name) for name in ("queues", *given)}
    return len(given) <= 1 and msgspec.structs.replace(which, **left) == _ANY


async def _by_sizes(db: Database, which: JobFilter, at_most: int) -> Count:
    names = await meant_queues(db, which)
    request = request_of("sizes", meant=filter_parts(which))
    requests = {db.keys.queue(name): request for name in names}
    sizes = await db.run_some("sizes", requests, int)
    if which.queues and sizes.silent:
        raise next(iter(sizes.silent.values()))
    number = sum(sizes.found.values())
    silent = tuple(sorted(map(queue_of, sizes.silent)))
    return Count(min(number, at_most), is_more=number > at_most, silent=silent)
