"""Simulated pods that claim jobs of limits with shares, on a real store, by a seed.

The simulation knows which jobs of each key wait and run. It asks the store for nothing but the key
of a claimed job, and looks after each claim whether another key should have been served.
"""

import random
from collections import Counter
from datetime import timedelta

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import ClaimedJob
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import MAX_WORKERS_LIMIT
from forge_jobs.model.transitions import Demand, Finalization
from forge_jobs.storage.protocols import Storage
from tests.support.factories import KIND, done, failed, new_job, only, register

_HOUR = timedelta(hours=1)
_STEPS = 25

Key = tuple[str, str]
"""The name of the limit, and the key."""


class FairShares:
    """A run of one seed.

    :param seed: names the queue too, so that a store can take one seed after the other
    """

    def __init__(self, storage: Storage, clock: ManualClock, seed: int) -> None:
        self._storage, self._clock, self._seed = storage, clock, seed
        self._rng = random.Random(seed)
        self._queue = f"shares-{seed}"
        self._slots = self._rng.randrange(1, 8)
        self._shares = {"even": 1, "heavy": self._rng.randrange(1, 4)}
        few = self._rng.randrange(2, 7)
        self._keys = [(self._rng.choice(["even", "heavy"]), f"key-{n}") for n in range(few)]
        self._key_of: dict[JobId, Key] = {}
        self._waiting: set[JobId] = set()
        self._running: dict[JobId, ClaimedJob] = {}
        self._served: dict[Key, Counter[Key]] = {}
        """For a key without a job in progress that waits: the jobs of others that started since."""

    async def run(self) -> None:
        """Make the run. In the end every job has ended."""
        bounds = dict.fromkeys(self._shares, MAX_WORKERS_LIMIT)
        await self._storage.config.ensure_limits(self._queue, bounds, self._shares)
        pods = [
            await register(self._storage, queues=(self._queue,), lease_for=_HOUR)
            for _ in range(self._rng.randrange(1, 4))
        ]
        deeds = [self._backlog, self._single, self._end_some, self._end_some, self._cancel]
        for _ in range(_STEPS):
            await self._rng.choice(deeds)()
            await self._fill(pods)
        while self._running:
            await self._end_some()
            await self._fill(pods)
        assert not self._waiting, self._says(f"{len(self._waiting)} jobs are never claimed")

    # -- deeds -------------------------------------------------------------------------------

    async def _backlog(self) -> None:
        await self._store(self._rng.choice(self._keys), self._rng.randrange(1, 40))

    async def _single(self) -> None:
        await self._store(("even", f"new-{len(self._key_of)}"), 1)

    async def _store(self, key: Key, count: int) -> None:
        self._clock.advance(1)
        jobs = [
            new_job(queue=self._queue, limit_name=key[0], limit_key=key[1], max_attempts=None)
            for _ in range(count)
        ]
        await self._storage.jobs.enqueue(jobs)
        self._key_of |= dict.fromkeys((job.id for job in jobs), key)
        self._waiting |= {job.id for job in jobs}
        if key not in self._used():
            self._served.setdefault(key, Counter())

    async def _end_some(self) -> None:
        """End some jobs. One that fails waits again, with a due time of its own."""
        self._clock.advance(1)
        count = min(len(self._running), self._rng.randrange(1, 4))
        for job_id in self._rng.sample(sorted(self._running), count):
            ended = self._running.pop(job_id)
            fails = self._rng.random() < 0.1
            end = failed() if fails else done()
            await self._storage.jobs.finalize([Finalization(ended.claim, end)])
            if fails:
                self._waiting.add(job_id)

    async def _cancel(self) -> None:
        count = min(len(self._waiting), self._rng.randrange(1, 5))
        some = self._rng.sample(sorted(self._waiting), count)
        if some:
            await self._storage.jobs.cancel(only(*some))
        self._waiting -= set(some)

    async def _fill(self, pods: list[PodLease]) -> None:
        """Claim as pods do: again while the answer says that more jobs are due."""
        self._clock.advance(1)
        started = list[JobId]()
        is_more = True
        while is_more and len(self._running) < self._slots:
            free = self._slots - len(self._running)
            workers = tuple(f"w{number}" for number in range(free))
            demand = Demand(worker_ids=workers, limit=free, kinds=frozenset({KIND}))
            pod = self._rng.choice(pods)
            answer = await self._storage.jobs.exchange(self._queue, [], demand, pod)
            for one in answer.claimed:
                started.append(one.claim.job_id)
                self._waiting.remove(one.claim.job_id)
                self._running[one.claim.job_id] = one
            is_more = answer.next_due_in == timedelta(0)
        self._check(started)

    # -- what must hold ----------------------------------------------------------------------

    def _check(self, started: list[JobId]) -> None:
        is_idle = self._waiting and len(self._running) < self._slots
        assert not is_idle, self._says(f"{self._slots - len(self._running)} slots are empty")
        used, new = self._used(), Counter(self._key_of[job_id] for job_id in started)
        waiting = {self._key_of[job_id] for job_id in self._waiting}
        for key in new:
            before = (used[key] - 1) / self._shares[key[0]]
            for other in waiting:
                has_less = used[other] / self._shares[other[0]] < before
                assert not has_less, self._says(f"{key} has a slot that is due to {other}")
        self._served = {
            key: served + new
            for key, served in self._served.items()
            if key in waiting and not used[key]
        }
        for key, served in self._served.items():
            [(most, times)] = served.most_common(1) or [(key, 0)]
            assert times <= 1, self._says(f"{key} waits for {times} jobs of {most}")

    def _used(self) -> Counter[Key]:
        return Counter(self._key_of[job_id] for job_id in self._running)

    def _says(self, problem: str) -> str:
        return f"FORGE_TEST_ADMISSION_SEED={self._seed}: {problem}"
