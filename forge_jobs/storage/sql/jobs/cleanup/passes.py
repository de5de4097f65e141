"""Passes of retention: batch after batch, each of them short, none of them undone by one row."""

from functools import partial
from typing import TypeVar

from forge_jobs.clock import SystemClock
from forge_jobs.model.ids import JobId
from forge_jobs.model.retention import Cleaned, Kept
from forge_jobs.storage.sql.base.database import Database
from forge_jobs.storage.sql.base.job_rows import Ended
from forge_jobs.storage.sql.jobs.cleanup import retention
from forge_jobs.storage.sql.jobs.cleanup.holds import Holds
from forge_jobs.storage.sql.jobs.cleanup.retention import Refused, Rest

_PASSED_BY_S = 3600.0
_MOST_PASSED_BY = 10_000

_elapsed = SystemClock().elapsed

R = TypeVar("R")


class Cleaner:
    """See ``JobStore.cleanup``. Remembers for an hour which jobs the database refuses to delete."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._held: dict[str, tuple[float, str]] = {}
        flavor = database.flavor
        self._holds = Holds(flavor.hold_s, flavor.most_hold_s)

    async def cleanup(self, limit: int, rest: object | None, kept: Kept) -> Cleaned:
        """See ``JobStore.cleanup``."""
        if isinstance(rest, Rest):
            found = rest
        else:
            plan = partial(retention.plan, kept=kept)
            found = await self._database.read(plan)
        removed, jobs, held = await self._remove_jobs(found, limit) if found.jobs else (0, [], {})
        others = []
        for other in found.others:
            gone, more = await self._database.write_then(
                partial(retention.remove_others, other=other, limit=limit, holds=self._holds),
                self._committed,
                synced=False,
            )
            removed += gone if other.what not in retention.FOLDED else 0
            if more is not None:
                others.append(more)
        left = Rest(jobs, others) if jobs or others else None
        return Cleaned(removed=removed, rest=left, held=held)

    async def _remove_jobs(
        self, rest: Rest, limit: int
    ) -> tuple[int, list[Ended], dict[JobId, str]]:
        self._forget_old()
        try:
            removed, left, passed = await self._database.write_then(
                partial(
                    retention.remove_ended,
                    overdue=rest.jobs,
                    limit=limit,
                    held=self._held.keys(),
                    holds=self._holds,
                ),
                self._committed,
                synced=False,
            )
        except Refused as refused:
            removed, held = await self._one_by_one(refused)
            return removed, list(refused.rest), held
        return removed, left, {JobId(each): self._held[each][1] for each in passed}

    def _committed(self, done: R) -> R:
        """Record, before the event loop runs another task, that nothing is locked any more.

        The disk is waited for only then: a removal that a loss of power undoes is made again.
        """
        self._holds.end()
        self._database.settle()
        return done

    async def _one_by_one(self, refused: Refused) -> tuple[int, dict[JobId, str]]:
        """Remove all jobs but the held ones, which are found by halving."""
        removed, held = 0, dict[JobId, str]()
        parts = [refused.ids]
        while parts:
            ids = parts.pop()
            try:
                removed += await self._database.write(partial(retention.remove_these, ids=ids))
            except Refused as one:
                if len(ids) == 1:
                    held[JobId(ids[0])] = one.reason
                    if len(self._held) < _MOST_PASSED_BY:
                        self._held[ids[0]] = (_elapsed(), one.reason)
                else:
                    half = len(ids) // 2
                    parts += [ids[half:], ids[:half]]
        return removed, held

    def _forget_old(self) -> None:
        now = _elapsed()
        for job_id, (since, _) in list(self._held.items()):
            if now - since < _PASSED_BY_S:
                break  # kept in the order of time
            del self._held[job_id]
