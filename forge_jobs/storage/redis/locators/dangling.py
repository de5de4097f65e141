"""Locators whose job is not there: the job was never stored, or was lost.

Retention takes the locators of jobs that were removed.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import TypeVar

from forge_jobs.errors import Unavailable
from forge_jobs.model.ids import JobId
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.scripts import item_of
from forge_jobs.storage.redis.driver.errors import WrongType
from forge_jobs.storage.redis.keys import OLD_HASHES, queue_of
from forge_jobs.storage.redis.locators.locators import mark_in, queue_in
from forge_jobs.storage.redis.locators.moving import look_again

T = TypeVar("T")

_AT_ONCE = 500
"""How many locators one call looks at."""

_Ids = Mapping[str, list[JobId]]


async def forget(db: Database, missing: _Ids) -> tuple[int, set[JobId]]:
    """Take the locators of jobs that are not there away, those that are new excepted.

    :param missing: ids by queue
    :returns: how many, and the ids whose locators do not answer
    """
    # First where one may be copied from.
    before, unknown = await _ask(db, "forget", missing, list[list[int]], source=True)
    left = {
        queue: [job_id for job_id in ids if job_id not in unknown] for queue, ids in missing.items()
    }
    counts, silent = await _ask(db, "forget", left, list[list[int]])
    return sum(before) + sum(counts), silent | unknown


class DanglingLocators:
    """An endless round over all locators."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._number = 0
        # How far the scan of each hash is. 0: the scan has ended.
        self._cursors: dict[str, int] = {}

    async def forget(self, known: Collection[str]) -> tuple[int, list[str]]:
        """Go one step on. Return how many locators of jobs that are not there were taken away, and
        the queues with jobs that are not among those that are known."""
        db = self._db
        located: defaultdict[str, list[JobId]] = defaultdict(list)
        for job_id, queue in await self._next():
            located[queue].append(job_id)
        requests = {db.keys.queue(queue): ids for queue, ids in located.items()}
        answers, _ = await db.run_some("dangling", requests, list[JobId])
        missing = {queue_of(base): ids for base, ids in answers.items() if ids}
        strange = sorted(
            queue
            for queue, ids in located.items()
            if queue not in known
            and db.keys.queue(queue) in answers
            and len(missing.get(queue, ())) < len(ids)
        )
        forgotten, _ = await forget(db, await self._barred(missing))
        return forgotten, strange

    async def _barred(self, missing: _Ids) -> dict[str, list[JobId]]:
        """Return those whose locators may go, because no call can store a job by them any more."""
        db = self._db
        settled, _ = await _ask(db, "settled", missing, list[list[tuple[str, JobId, str]]])
        bars: defaultdict[str, list[object]] = defaultdict(list)
        for queue, job_id, locator in settled:
            # One without a mark is written by the step that stores the job.
            if mark := mark_in(locator):
                bars[db.keys.queue(queue)].append(item_of("bar", "job", id=job_id, mark=mark))
        answers, silent = await db.run_some("bar", bars, list[tuple[JobId, str]])
        come = {job_id for pairs in answers.values() for job_id, _ in pairs}
        barred: defaultdict[str, list[JobId]] = defaultdict(list)
        for queue, job_id, _ in settled:
            if job_id not in come and db.keys.queue(queue) not in silent:
                barred[queue].append(job_id)
        return barred

    async def _next(self) -> list[tuple[JobId, str]]:
        """Some locators: of the hashes over which those of one old hash are spread at a time."""
        places = self._db.places
        keys = [key for key in places.hashes(self._number) if self._cursors.get(key) != 0]
        if not keys:
            self._number = (self._number + 1) % OLD_HASHES
            self._cursors = {}
            keys = places.hashes(self._number)
        each = _AT_ONCE // len(keys)
        scans = [("HSCAN", key, self._cursors.get(key, 0), "COUNT", each) for key in keys]
        seen = places.states
        try:
            replies = await self._db.commands(scans, some=True)
        except WrongType:
            await look_again(self._db, seen)
            return []
        found: list[tuple[JobId, str]] = []
        for key, reply in zip(keys, replies, strict=True):
            cursor, flat = (0, []) if isinstance(reply, Unavailable) else reply
            self._cursors[key] = int(cursor)
            found += (
                (JobId(job_id.decode()), queue_in(value))
                for job_id, value in zip(flat[::2], flat[1::2], strict=True)
            )
        return found


async def _ask(
    db: Database, script: str, ids_of: _Ids, answer: type[list[list[T]]], *, source: bool = False
) -> tuple[list[T], set[JobId]]:
    """Run a script of ``{ queue, ids }`` at the locators of the ids. Return all answers, and the
    ids whose locators do not answer, or are elsewhere by now.

    :param source: at those that are still to be moved
    """
    seen = db.places.states
    requests: defaultdict[str, list[tuple[str, list[JobId]]]] = defaultdict(list)
    for queue, ids in ids_of.items():
        of_hash: defaultdict[str, list[JobId]] = defaultdict(list)
        for job_id in ids:
            of_hash[db.places.source(job_id) if source else db.places.of(job_id)].append(job_id)
        for key, found in of_hash.items():
            if key:
                requests[key].append((queue, found))
    asked, ids_at = dict[str, object](), dict[str, list[JobId]]()
    for key, each in requests.items():
        base, _, name = key.rpartition(":")
        groups = [item_of(script, "group", queue=queue, ids=ids) for queue, ids in each]
        asked[base] = item_of(script, "asked", name=name, groups=groups)
        ids_at[base] = [job_id for _, ids in each for job_id in ids]
    answers, silent = await db.run_some(script, asked, answer)
    moved = [base for base, found in answers.items() if not found]
    if moved:
        await look_again(db, seen)
    unasked = {job_id for base in (*silent, *moved) for job_id in ids_at[base]}
    return [one for found in answers.values() for ones in found for one in ones], unasked
