"""Retention: removes what is no longer kept, in bounded batches, oldest first."""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import timedelta

import msgspec

from forge_jobs.clock import duration_us
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobFilter
from forge_jobs.model.queues import Retention
from forge_jobs.storage.redis.database import Database
from forge_jobs.storage.redis.filters import filter_parts
from forge_jobs.storage.redis.fleet import queue_names
from forge_jobs.storage.redis.keys import queue_of
from forge_jobs.storage.redis.lists import PORTION
from forge_jobs.storage.redis.locators import queue_in

_HISTORY_US = duration_us(timedelta(days=30))
"""How long timeline events and minutes stay."""

MOST_EVENTS = 100_000
"""How many timeline events a queue keeps, because here they take memory."""

_HISTORY = (_HISTORY_US, MOST_EVENTS)

_FORGOTTEN_ROUNDS = 10
"""How many thousand locators of removed jobs one call takes away, per queue."""

_SWEPT_AT_ONCE, _HASHES_AT_ONCE = 500, 8
"""How many locators one call looks at, for those that never got a job, and in how many hashes."""

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
    """Cleans up; remembers how far it has looked through the locators."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._hash = 0
        self._cursor = 0

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
        await self._sweep_locators()
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
                    await self._forget({queue_of(base): gone})
                    await self._db.commands([("ZREM", f"{base}:gone", *gone)])
            bases = [base for base, gone in found.items() if len(gone) == PORTION]

    async def _sweep_locators(self) -> None:
        """Take locators away whose job was never stored: a step of an endless round."""
        located: defaultdict[str, list[JobId]] = defaultdict(list)
        for _ in range(_HASHES_AT_ONCE):
            if sum(map(len, located.values())) < _SWEPT_AT_ONCE:
                for job_id, queue in await self._next_locators():
                    located[queue].append(job_id)
        db = self._db
        every = filter_parts(JobFilter())
        requests = {db.keys.queue(queue): (every, ids) for queue, ids in located.items()}
        stored = await db.run("match", requests, list[JobId])
        await self._forget(
            {
                queue: missing
                for queue, ids in located.items()
                if (missing := sorted(set(ids) - set(stored[db.keys.queue(queue)])))
            }
        )

    async def _next_locators(self) -> list[tuple[JobId, str]]:
        hashes = self._db.keys.all_locators()
        command = ("HSCAN", hashes[self._hash], self._cursor, "COUNT", _SWEPT_AT_ONCE)
        [(cursor, flat)] = await self._db.commands([command])
        self._cursor = int(cursor)
        if not self._cursor:
            self._hash = (self._hash + 1) % len(hashes)
        return [
            (JobId(job_id.decode()), queue_in(value))
            for job_id, value in zip(flat[::2], flat[1::2], strict=True)
        ]

    async def _forget(self, missing: Mapping[str, list[JobId]]) -> None:
        """Take the locators of jobs that are not there away; queue -> ids."""
        requests: defaultdict[str, list[tuple[str, list[JobId]]]] = defaultdict(list)
        for queue, ids in missing.items():
            of_hash: defaultdict[str, list[JobId]] = defaultdict(list)
            for job_id in ids:
                of_hash[self._db.keys.locators(job_id)].append(job_id)
            for key, found in of_hash.items():
                requests[key.removesuffix(":ids")].append((queue, found))
        await self._db.run("forget", requests, bool)


def _rules(retention: Retention) -> Iterator[tuple[str, int, int]]:
    for status in ("done", "dead", "cancelled"):
        most = getattr(retention, f"max_{status}")
        # A time less this is a number that Lua holds exactly.
        age = min(duration_us(getattr(retention, status)), 2**52)
        yield status, age, -1 if most is None else most
