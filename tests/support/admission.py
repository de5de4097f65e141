"""Simulated pods that claim from one queue with limits by key, on a real store, by a seed.

Time is the store's own manual clock, and one call is made after the other, so a seed makes the
same calls again. The simulation notes which jobs wait and which run, and asks the store nothing.
"""

import random
from collections import Counter
from datetime import timedelta
from typing import NamedTuple

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import ClaimedJob, NewJob
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Demand, Finalization, Transition
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    KIND,
    LEASE,
    dead,
    done,
    failed,
    new_job,
    only,
    register,
    revive,
    snoozed,
)

Permit = tuple[str, str]

_DAY = timedelta(days=1)
_LARGE = 25
"""Seeds that are multiples of this have thousands of keys."""


class Waiting(NamedTuple):
    """A job that waits, by its place in the queue."""

    priority: int
    run_at: int
    job_id: JobId


class Admission:
    """A run of one seed.

    :param seed: names the queue too, so that a store can take one seed after the other
    """

    def __init__(self, storage: Storage, clock: ManualClock, seed: int) -> None:
        self._storage = storage
        self._clock = clock
        self._rng = random.Random(seed)
        self._seed = seed
        self._queue = f"admission-{seed}"
        is_large = seed % _LARGE == 0
        self._keys = self._rng.randrange(1_000, 3_000) if is_large else self._rng.randrange(1, 40)
        self._steps = 30 if is_large else 60
        self._most = 400 if is_large else 12
        self._at_most: dict[str, int] = {}
        self._permits: dict[JobId, Permit | None] = {}
        self._waiting: dict[JobId, Waiting] = {}
        self._running: dict[JobId, tuple[ClaimedJob, PodLease]] = {}
        self._has_crashed: set[JobId] = set()
        self._pods: list[PodLease] = []

    async def run(self) -> None:
        """Make the run. In the end every job has ended."""
        names = [f"limit-{number}" for number in range(self._rng.randrange(1, 4))]
        self._at_most = {name: self._rng.randrange(1, 5) for name in names}
        await self._storage.config.ensure_limits(self._queue, self._at_most)
        for _ in range(self._rng.randrange(2, 9)):
            await self._add_pod()
        deeds = [self._enqueue, self._claim, self._exchange, self._end, self._pass_time]
        rare = [self._crash, self._cancel, self._set_limit, self._claim_all]
        for _ in range(self._steps):
            await self._rng.choice(deeds * 3 + rare)()
        await self._drain()

    async def _add_pod(self) -> None:
        lease = await register(self._storage, queues=(self._queue,), lease_for=100 * _DAY)
        self._pods.append(lease)

    # -- deeds -------------------------------------------------------------------------------

    async def _enqueue(self) -> None:
        requests = [self._request() for _ in range(self._rng.randrange(1, self._most))]
        for start in range(0, len(requests), 200):
            await self._storage.jobs.enqueue(requests[start : start + 200])
        for job in requests:
            delay_us = 0 if job.delay is None else int(job.delay.total_seconds() * 1e6)
            at = self._clock.time_us() + delay_us
            self._waiting[job.id] = Waiting(job.priority, at, job.id)

    def _request(self) -> NewJob:
        job_id = JobId(f"01{self._seed:08d}{len(self._permits):016d}")
        name = self._rng.choice([*self._at_most, None])
        permit = None if name is None else (name, f"key-{self._rng.randrange(self._keys)}")
        self._permits[job_id] = permit
        delay = self._rng.choice([None, None, None, timedelta(seconds=self._rng.randrange(1, 9))])
        return new_job(
            id=job_id,
            queue=self._queue,
            priority=self._rng.choice([-1, 0, 0, 0, 1]),
            delay=delay,
            max_attempts=None,
            limit_name=None if permit is None else permit[0],
            limit_key="" if permit is None else permit[1],
        )

    async def _claim(self) -> None:
        await self._exchange_of([])

    async def _exchange(self) -> None:
        """End some jobs and claim others in one call."""
        await self._exchange_of(self._some_running())

    async def _end(self) -> None:
        """End some jobs, each in a way of its own."""
        ended = self._some_running()
        ends = [self._rng.choice(self._ends()) for _ in ended]
        await self._storage.jobs.finalize(
            [Finalization(one.claim, end) for one, end in zip(ended, ends, strict=True)]
        )
        for one, end in zip(ended, ends, strict=True):
            self._note_end(one, end)

    async def _pass_time(self) -> None:
        self._clock.advance(self._rng.randrange(1, 5))

    async def _crash(self) -> None:
        """A pod dies. Another one returns its jobs to the queue once its beats are old."""
        lease = self._rng.choice(self._pods)
        self._pods.remove(lease)
        self._clock.advance(2 * LEASE)
        for one, of in list(self._running.values()):
            if of is lease:
                assert await revive(self._storage, one), self._says("a dead pod keeps a job")
                self._has_crashed.add(one.claim.job_id)
                self._wait_again(one)
        await self._add_pod()

    async def _cancel(self) -> None:
        """Cancel jobs that wait, also such as were made ready for a place that is free."""
        count = min(len(self._waiting), self._rng.randrange(1, 9))
        ids = self._rng.sample(sorted(self._waiting), count)
        await self._storage.jobs.cancel(only(*ids))
        for job_id in ids:
            del self._waiting[job_id]

    async def _set_limit(self) -> None:
        name = self._rng.choice(sorted(self._at_most))
        self._at_most[name] = self._rng.randrange(1, 6)
        await self._storage.config.set_limit(self._queue, name, self._at_most[name])

    async def _claim_all(self) -> None:
        """Claim until nothing comes. Then no key has room and a job that is due."""
        empty = 0
        while empty < 3:
            empty = 0 if await self._exchange_of([], limit=200) else empty + 1
        used = Counter(self._permits[job_id] for job_id in self._running)
        for job in self._due():
            permit = self._permits[job.job_id]
            assert permit is not None, self._says(f"{job.job_id} has no limit and waits")
            is_full = used[permit] >= self._at_most[permit[0]]
            assert is_full, self._says(f"{permit} has room, and {job.job_id} waits")

    async def _drain(self) -> None:
        """Let everything end. No job may be left on hold."""
        while self._waiting or self._running:
            self._clock.advance(10)
            await self._claim_all()
            assert self._running, self._says(f"{len(self._waiting)} jobs are never claimed")
            ended = [one for one, _ in self._running.values()]
            for start in range(0, len(ended), 200):
                part = ended[start : start + 200]
                await self._storage.jobs.finalize([Finalization(one.claim, done()) for one in part])
            self._running.clear()

    # -- inside ------------------------------------------------------------------------------

    def _some_running(self) -> list[ClaimedJob]:
        count = min(len(self._running), self._rng.randrange(1, self._most))
        return [self._running[job_id][0] for job_id in self._rng.sample([*self._running], count)]

    def _ends(self) -> list[Transition]:
        delay = timedelta(seconds=self._rng.randrange(4))
        return [done(), done(), done(), dead(), failed(delay), snoozed(delay)]

    def _note_end(self, one: ClaimedJob, end: Transition) -> None:
        if end.status.value in ("pending", "failed"):
            self._wait_again(one, int((end.delay or timedelta(0)).total_seconds() * 1e6))
        else:
            del self._running[one.claim.job_id]

    def _wait_again(self, one: ClaimedJob, delay_us: int = 0) -> None:
        job_id = one.claim.job_id
        del self._running[job_id]
        self._waiting[job_id] = Waiting(one.priority, self._clock.time_us() + delay_us, job_id)

    async def _exchange_of(self, ended: list[ClaimedJob], limit: int = 0) -> int:
        lease = self._rng.choice(self._pods)
        # Jobs that have crashed are for workers alone, others are held ahead too.
        workers = limit or self._rng.choice([0, 1, 5])
        limit = limit or max(workers, self._rng.choice([1, 2, 5, 20]))
        worker_ids = tuple(f"worker-{number}" for number in range(workers))
        demand = Demand(worker_ids=worker_ids, limit=limit, kinds=frozenset({KIND}))
        ends = [Finalization(one.claim, done()) for one in ended]
        outcome = await self._storage.jobs.exchange(self._queue, ends, demand, lease)
        for one in ended:
            self._note_end(one, done())
        self._take(list(outcome.claimed), lease)
        return len(outcome.claimed)

    def _take(self, claimed: list[ClaimedJob], lease: PodLease) -> None:
        due = self._due()
        for one in claimed:
            job_id = one.claim.job_id
            assert job_id in self._waiting, self._says(f"{job_id} does not wait, and was claimed")
            del self._waiting[job_id]
            self._running[job_id] = one, lease
        used = Counter(self._permits[job_id] for job_id in self._running)
        taken = {one.claim.job_id for one in claimed}
        for permit in {self._permits[job_id] for job_id in taken} - {None}:
            assert permit is not None
            most = self._at_most[permit[0]]
            assert used[permit] <= most, self._says(f"{used[permit]} of {permit}, {most} may run")
            self._hold_to_order(permit, due, taken)

    def _hold_to_order(self, permit: Permit, due: list[Waiting], taken: set[JobId]) -> None:
        """Jobs of a key are claimed in the order of the queue. Those that crashed run alone."""
        of_key = [job.job_id for job in due if self._permits[job.job_id] == permit]
        if self._has_crashed.isdisjoint(of_key):
            count = len(taken.intersection(of_key))
            assert taken.issuperset(of_key[:count]), self._says(f"{permit} is out of order")

    def _due(self) -> list[Waiting]:
        now = self._clock.time_us()
        return sorted(job for job in self._waiting.values() if job.run_at <= now)

    def _says(self, text: str) -> str:
        return f"seed {self._seed}: {text}"
