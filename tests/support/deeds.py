"""Random deeds of pods, programs and operators on one queue, by a seed, and what is left of it.

The queue has limits with and without a share, sequences, jobs that expire, and kinds that only one
of two pods knows. At the end both pods live, and work until nothing comes any more. Which job runs
when is of no interest here: each one has to end.
"""

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Conflict, NotFound
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import TERMINAL, ClaimedJob, Job, Line, NewJob
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import MAX_WORKERS_LIMIT
from forge_jobs.model.transitions import Demand, Finalization, Transition
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    KIND,
    SECOND,
    crashed,
    dead,
    done,
    failed,
    new_job,
    rate_limited,
    register,
    revive,
    snoozed,
)

_OTHER = f"{KIND}.other"
_KNOWN = {"narrow": frozenset({KIND}), "wide": frozenset({KIND, _OTHER})}
_LIMITS: dict[str, tuple[int, int | None]] = {
    "shared": (MAX_WORKERS_LIMIT, 1),
    "weighty": (2, 2),
    "single": (1, None),
    "triple": (3, None),
}
_MS = timedelta(milliseconds=1)
_QUIET = 6
"""So many looks of both pods without a job, a second apart, are the end."""


class Deeds:
    """A run of one seed. The seed names the queue too."""

    def __init__(self, storage: Storage, clock: ManualClock, seed: int) -> None:
        self._storage, self._clock = storage, clock
        self._rng = rng = random.Random(seed)
        self._queue = f"deeds-{seed}"
        self._limits = {name: _LIMITS[name] for name in rng.sample([*_LIMITS], rng.randint(1, 4))}
        self._keys = [f"k{number}" for number in range(rng.choice([1, 2, 5, 40]))]
        self._has_lines, self._expires = rng.random() < 0.5, rng.random() < 0.4
        self._leases: dict[str, PodLease] = {}
        self._held: dict[str, list[ClaimedJob]] = {name: [] for name in _KNOWN}
        self._ids: list[JobId] = []

    async def run(self) -> list[Job]:
        """Do what the seed says, work on all there is, and return the jobs that have not ended."""
        deeds: list[Callable[[], Awaitable[object]]] = [
            self._enqueue,
            *[self._exchange] * 3,
            self._release,
            self._crash,
            self._operate,
            self._change_limit,
            self._expire,
            self._sweep,
            self._replace_pod,
            self._pause,
        ]
        weights = [self._rng.random() ** 2 for _ in deeds]
        await self._declare()
        for name in _KNOWN:
            await self._join(name)
        for deed in self._rng.choices(deeds, weights, k=self._rng.choice([20, 60, 120])):
            self._clock.advance(self._rng.choice([0, 1, 1, 5]) * _MS)
            with suppress(Conflict, NotFound):
                await deed()
        return await self._finish()

    async def _declare(self) -> None:
        shares = {name: share for name, (_, share) in self._limits.items() if share}
        bounds = {name: at_most for name, (at_most, _) in self._limits.items()}
        await self._storage.config.ensure_limits(self._queue, bounds, shares)

    async def _join(self, name: str) -> None:
        self._leases[name] = await register(
            self._storage, queues=[self._queue], kinds=sorted(_KNOWN[name]), lease_for=1_000 * DAY
        )

    async def _enqueue(self) -> None:
        requests = [self._request() for _ in range(self._rng.choice([1, 3, 10, 40]))]
        self._ids += [each.job_id for each in await self._storage.jobs.enqueue(requests)]

    def _request(self) -> NewJob:
        rng = self._rng
        fields: dict[str, Any] = {"kind": _OTHER if rng.random() < 0.3 else KIND}
        fields["priority"] = rng.choice([0, 0, 0, 1, -1])
        if limit := rng.choice([*self._limits, ""]):
            fields |= {"limit_name": limit, "limit_key": rng.choice(self._keys)}
        if self._has_lines and rng.random() < 0.15:
            fields["sequence"] = Line(rng.choice("xyz"), "skip")
        if rng.random() < 0.2:
            fields["delay"] = rng.randint(0, 40) * _MS
        if self._expires and rng.random() < 0.1:
            fields["expires_at"] = self._clock.now() + rng.randint(1, 50) * _MS
        return new_job(queue=self._queue, **fields)

    async def _exchange(self) -> None:
        name = self._rng.choice([*_KNOWN])
        limit = self._rng.choice([1, 2, 5, 20])
        workers = self._rng.choice([0, limit // 2, limit, limit])
        ends = [Finalization(job.claim, self._end()) for job in self._some(name)]
        self._held[name] += await self._claim(name, workers, limit, ends)

    async def _claim(
        self, name: str, workers: int, limit: int, ends: list[Finalization]
    ) -> list[ClaimedJob]:
        ids = tuple(f"w{number}" for number in range(workers))
        demand = Demand(worker_ids=ids, limit=limit, kinds=_KNOWN[name])
        lease = self._leases[name]
        exchange = await self._storage.jobs.exchange(self._queue, ends, demand, lease)
        return list(exchange.claimed)

    def _end(self) -> Transition:
        after = self._rng.randint(0, 20) * _MS
        ends = [done(), done(), done(), dead(), failed(after), snoozed(after), rate_limited(after)]
        return self._rng.choice(ends)

    def _some(self, name: str, most: int = 1_000) -> list[ClaimedJob]:
        """Take some of the claims of a pod."""
        held = self._held[name]
        self._rng.shuffle(held)
        count = self._rng.randint(0, min(most, len(held)))
        some, self._held[name] = held[:count], held[count:]
        return some

    async def _release(self) -> None:
        some = self._some(self._rng.choice([*_KNOWN]))
        await self._storage.jobs.release([job.claim for job in some])

    async def _crash(self) -> None:
        self._clock.advance(2 * SECOND)
        for job in self._some(self._rng.choice([*_KNOWN]), 3):
            delay = self._rng.choice([None, 0 * _MS, 9 * _MS])
            await revive(self._storage, job, crashed(delay=delay), stale_after=SECOND)

    async def _operate(self) -> None:
        jobs = self._storage.jobs
        some = self._rng.sample(self._ids, min(len(self._ids), self._rng.choice([1, 5])))
        verbs: list[Callable[[JobFilter], Awaitable[object]]]
        verbs = [jobs.cancel, jobs.requeue, jobs.restore, jobs.run_now, jobs.release_held]
        await self._rng.choice([*verbs, jobs.delete])(JobFilter(ids=tuple(some)))

    async def _change_limit(self) -> None:
        config, rng = self._storage.config, self._rng
        name = rng.choice([*self._limits])
        match rng.randint(0, 3):
            case 0:
                await config.delete_limit(self._queue, name)
            case 1:
                await self._declare()
            case _:
                share = rng.choice([1, 3]) if self._limits[name][1] else None
                await config.set_limit(self._queue, name, rng.choice([1, 2, 100]), share)

    async def _expire(self) -> None:
        await self._storage.jobs.expire(self._rng.choice([1, 100]))
        await self._hand_over()

    async def _hand_over(self) -> int:
        told = await self._storage.jobs.handovers(1_000)
        return await self._storage.jobs.deliver([delivery(each) for each in told])

    async def _sweep(self) -> None:
        await self._storage.jobs.sweep(100)

    async def _replace_pod(self) -> None:
        """The pod that knows all kinds leaves, the other one may claim, and a new one comes."""
        await self._storage.procs.unregister(self._leases["wide"])
        await self._storage.jobs.release([job.claim for job in self._held["wide"]])
        self._held["wide"] = []
        self._clock.advance(2 * SECOND)
        if self._rng.random() < 0.5:
            self._held["narrow"] += await self._claim("narrow", 3, 3, [])
        await self._join("wide")
        await self._storage.procs.free_held_jobs(1_000)

    async def _pause(self) -> None:
        await self._storage.config.set_paused(self._queue, True)
        assert not await self._claim("narrow", 1, 1, [])
        await self._storage.config.set_paused(self._queue, False)

    async def _finish(self) -> list[Job]:
        quiet = 0
        names = self._rng.choice([["wide"], ["narrow", "wide"]])
        while quiet < _QUIET:
            self._clock.advance(SECOND)
            moved = 0
            for name in names if quiet < _QUIET // 2 else [*_KNOWN]:
                ends = [Finalization(job.claim, done()) for job in self._held[name]]
                self._held[name] = await self._claim(name, 20, 20, ends)
                moved += len(ends) + len(self._held[name])
            await self._storage.jobs.expire(1_000)
            quiet = 0 if moved + await self._hand_over() else quiet + 1
        stored = await self._storage.jobs.get(self._ids)
        return [job for job in stored.values() if job.status not in TERMINAL]
