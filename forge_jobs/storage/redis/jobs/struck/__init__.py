"""Jobs that strikes hold: what they wait for, and their release."""

from collections.abc import Collection, Sequence

from forge_jobs.clock import from_us
from forge_jobs.model.looks import MOST_MARKS, StruckLine
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.queues import in_all_queues, in_some_queues
from forge_jobs.storage.redis.base.scripts import request_of
from forge_jobs.storage.redis.base.steps import ITEMS_AT_ONCE


async def struck_lines(db: Database, queues: Sequence[str]) -> tuple[StruckLine, ...]:
    """Return how many jobs the first strikes hold in each of the queues, in one round trip."""
    found = await in_some_queues(
        db, "struck_lines", queues, [MOST_MARKS], list[tuple[str, int, int]]
    )
    lines = [
        StruckLine(mark=mark, queue=queue, jobs=jobs, oldest_due_at=from_us(oldest))
        for queue, marks in found.items()
        for mark, jobs, oldest in marks
    ]
    first = sorted({line.mark for line in lines})[:MOST_MARKS]
    in_order = sorted(lines, key=lambda line: (line.mark, line.queue))
    return tuple(line for line in in_order if line.mark in first)


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
