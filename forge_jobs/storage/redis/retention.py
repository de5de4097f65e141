"""Retention: removes what is no longer kept, in bounded batches, oldest first."""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import timedelta

import msgspec

from forge_jobs.clock import duration_us
from forge_jobs.model.ids import JobId
from forge_jobs.model.queues import Retention
from forge_jobs.storage.redis.dangling import forget
from forge_jobs.storage.redis.database import Database
from forge_jobs.storage.redis.fleet import queue_names
from forge_jobs.storage.redis.keys import queue_of
from forge_jobs.storage.redis.lists import PORTION

_HISTORY_US = duration_us(timedelta(days=30))
"""How long timeline events and minutes stay."""

MOST_EVENTS = 100_000
"""How many timeline events a queue keeps, because here they take memory."""

_HISTORY = (_HISTORY_US, MOST_EVENTS)

_FORGOTTEN_ROUNDS = 10
"""How many thousand locators of removed jobs one call takes away, per queue."""

_decode = msgspec.json.Decoder(Retention).decode


class _Overdue(msgspec.Struct, frozen=True, array_like=True):
    """What ``overdue.lua`` answers: jobs, and how many each other list has to drop."""

    jobs: list[tuple[int, JobId]]
    results: int
    events: int
    minutes: int
    gauges: int
    gone: int


class Cleaner:
    """Cleans up."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def cleanup(self, limit: int) -> int:
        """See ``JobStore.cleanup``. At most ``limit`` rows of each sort."""
        overdue = await self._overdue(limit)
        await self._forget_removed(overdue)
        removed = await self._remove_jobs(overdue, limit)
        removed += await self._drop("drop_results", overdue, "results", limit)
        removed += await self._drop("drop_events", overdue, "events", limit, *_HISTORY)
        for name, prefixes in (("minutes", (":m:", ":l:")), ("gauges", (":g:",))):
            parts = (_HISTORY_US, f":{name}", prefixes)
            removed += await self._drop("drop_minutes", overdue, name, limit, *parts)
        return removed

    async def _overdue(self, limit: int) -> dict[str, _Overdue]:
        db = self._db
        bases = [db.keys.queue(name) for name in await queue_names(db)]
        texts = await db.commands([("HGET", f"{base}:queue", "retention") for base in bases])
        requests: dict[str, object] = {
            base: (list(_rules(_decode(text))) if text else [], limit, *_HISTORY)
            for base, text in zip(bases, texts, strict=True)
        }
        requests[db.keys.fleet] = ([], limit, *_HISTORY)
        return await db.run("overdue", requests, _Overdue)

    async def _remove_jobs(self, overdue: Mapping[str, _Overdue], limit: int) -> int:
        found = [(*job, base) for base, each in overdue.items() for job in each.jobs]
        requests: defaultdict[str, list[tuple[int, JobId]]] = defaultdict(list)
        for ended, job_id, base in heapq.nsmallest(limit, found):
            requests[base].append((ended, job_id))
        return sum((await self._db.run("remove", requests, int)).values())

    async def _drop(
        self, script: str, overdue: Mapping[str, _Overdue], name: str, limit: int, *parts: object
    ) -> int:
        """Run ``script`` queue by queue until ``limit`` have gone."""
        dropped = 0
        for base, each in overdue.items():
            if getattr(each, name) and dropped < limit:
                left = limit - dropped
                request = (*parts, left) if parts else left
                dropped += await self._db.run_one(script, base, request, int)
        return dropped

    # -- locators ------------------------------------------------------------------------------

    async def _forget_removed(self, overdue: Mapping[str, _Overdue]) -> None:
        """Take the locators of removed jobs away, then the notes that they have to go."""
        bases = [base for base, each in overdue.items() if each.gone]
        for _ in range(_FORGOTTEN_ROUNDS):
            requests = dict.fromkeys(bases, PORTION)
            found = await self._db.run("gone", requests, list[JobId])
            for base, gone in found.items():
                if gone:
                    await forget(self._db, {queue_of(base): gone})
                    await self._db.commands([("ZREM", f"{base}:gone", *gone)])
            bases = [base for base, gone in found.items() if len(gone) == PORTION]


def _rules(retention: Retention) -> Iterator[tuple[str, int, int]]:
    for status in ("done", "dead", "cancelled"):
        most = getattr(retention, f"max_{status}")
        # A time less this is a number that Lua holds exactly.
        age = min(duration_us(getattr(retention, status)), 2**52)
        yield status, age, -1 if most is None else most
