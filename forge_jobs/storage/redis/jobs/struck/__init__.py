"""Jobs that strikes hold: what they wait for, and their release."""

from collections.abc import Collection

from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.queues import in_all_queues
from forge_jobs.storage.redis.base.scripts import request_of
from forge_jobs.storage.redis.base.steps import ITEMS_AT_ONCE


async def release_struck(db: Database, in_force: Collection[str], limit: int) -> int:
    """See ``JobStore.release_struck``."""
    held = await in_all_queues(db, "struck", [], list[str])
    released = 0
    for queue, marks in held.items():
        left = [mark for mark in marks if mark not in in_force]
        found = len(left)
        while found and released < limit:
            most = min(limit - released, ITEMS_AT_ONCE)
            request = {db.keys.queue(queue): request_of("release_struck", marks=left, most=most)}
            found = sum((await db.run_some("release_struck", request, int)).found.values())
            released += found
    return released
