"""Simulated pods that claim from one queue with limits by key, on a real store, by a seed.

Time is the store's own manual clock, and the seed draws the calls, so a seed makes the same calls
again. Some calls are made together: on SQLite the store puts them in one order, on PostgreSQL and
Redis the order of these may differ from run to run. The simulation notes which jobs wait and which
run, and asks the store nothing.

Seeds differ in what they do often and what they never do, and most have few keys: a key must be met
again and again before its notes can go wrong.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import ClaimedJob, NewJob
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import RateAsk, RateLimit
from forge_jobs.model.transitions import CLAIM_BYTES, Demand, Finalization, Transition
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.postgres.short.claim_cursors import EVERYTHING, ClaimCursors, Place
from tests.support.admission_notes import PER_US, TOKENS, Notes, Permit, Waiting
from tests.support.factories import (
    KIND,
    LEASE,
    dead,
    done,
    failed,
    new_job,
    only,
    rate_limited,
    register,
    revive,
    snoozed,
)

_DAY = timedelta(days=1)
_LARGE = 54
"""Seeds that are multiples of this have thousands of keys."""
_WOKEN = 5
"""Seeds that are multiples of this look for a lost wake-up too."""
_KINDS = (KIND, f"{KIND}.other")
_RATE = RateLimit(TOKENS, per=timedelta(microseconds=PER_US))


class Admission(Notes):
    """A run of one seed.

    :param seed: names the queue too, so that a store can take one seed after the other
    """

    def __init__(self, storage: Storage, clock: ManualClock, seed: int) -> None:
        super().__init__(clock, seed)
        self._storage = storage
        self._rng = random.Random(seed)
        self._queue = f"admission-{seed}"
        is_large = self._is_large = seed % _LARGE == 0
        few = self._rng.choice([1, 2, 3, 6, 40])
        self._keys = self._rng.randrange(1_040, 1_200) if is_large else few
        self._steps = 8 if is_large else 60
        self._most = 200 if is_large else 12
        self._rates: dict[JobId, str] = {}
        self._has_kinds, self._has_rates = self._rng.random() < 0.3, self._rng.random() < 0.3
        self._pods: list[PodLease] = []

    async def run(self) -> None:
        """Make the run. In the end every job has ended."""
        names = [f"limit-{number}" for number in range(self._rng.randrange(1, 4))]
        self.at_most = {name: self._rng.randrange(1, 5) for name in names}
        if self._is_large:
            self.at_most[names[0]] = 1
        await self._storage.config.ensure_limits(self._queue, self.at_most)
        await self._storage.config.ensure_rate_limit(self._queue, _RATE)
        for _ in range(self._rng.randrange(2, 9)):
            await self._add_pod()
        deeds = self._deeds()
        if self._is_large:
            await self._tide()
        for _ in range(self._steps):
            await self._rng.choice(deeds)()
        if self.seed % _WOKEN == 0:
            await self._wake()
        await self._drain()

    async def _tide(self) -> None:
        """Let more keys open at once than a claim looks at, and meet new jobs of the last ones.

        Jobs on hold of those come first, though no claim has opened the key yet.
        """
        half = self._keys // 2
        places = [(f"key-{n}", (-1, 1) if n < half else (0, 0)) for n in range(self._keys)]
        for turn in (0, 1):
            await self._store([self._of_key(key, places_[turn]) for key, places_ in places])
        await self._claim_all()
        await self._finish_all()
        self.clock.advance(1)
        await self._store([self._of_key(key, 0) for key, _ in places[-20:]])
        await self._exchange_of([], 20)

    def _deeds(self) -> Sequence[Callable[[], Awaitable[object]]]:
        """Return what this seed does, the frequent things several times."""
        often = [self._enqueue, self._claim, self._exchange, self._claim_all]
        other = [self._end, self._pass_time, self._together, self._cut_short]
        rare = [self._crash, self._cancel, self._set_limit]
        drawn = [deed for deed in other for _ in range(self._rng.choice([0, 1, 3]))]
        return often * 2 + drawn + [deed for deed in rare if self._rng.random() < 0.5]

    async def _add_pod(self) -> None:
        lease = await register(
            self._storage, queues=(self._queue,), kinds=_KINDS, lease_for=100 * _DAY
        )
        self._pods.append(lease)

    # -- deeds -------------------------------------------------------------------------------

    async def _enqueue(self) -> None:
        await self._store([self._request() for _ in range(self._rng.randrange(1, self._most))])

    async def _store(self, requests: list[NewJob]) -> None:
        for start in range(0, len(requests), 200):
            await self._storage.jobs.enqueue(requests[start : start + 200])
        for job in requests:
            delay_us = 0 if job.delay is None else int(job.delay.total_seconds() * 1e6)
            at = self.clock.time_us() + delay_us
            self.waiting[job.id] = Waiting(job.priority, at, job.id)

    def _of_key(self, key: str, priority: int) -> NewJob:
        """Return a job of the first limit that is due now."""
        permit = "limit-0", key
        return self._noted(permit, priority=priority)

    def _request(self) -> NewJob:
        name = self._rng.choice([*self.at_most, None])
        permit = None if name is None else (name, f"key-{self._rng.randrange(self._keys)}")
        job = self._noted(
            permit,
            kind=self._rng.choice(_KINDS) if self._has_kinds else KIND,
            payload=f'"{"x" * self._rng.randrange(40)}"',
            priority=self._rng.choice([-1, 0, 0, 0, 1]),
            delay=self._rng.choice(
                [None, None, None, timedelta(seconds=self._rng.randrange(1, 9))]
            ),
        )
        if self._has_rates and self._rng.random() < 0.3:
            self._rates[job.id] = f"rate-{self._rng.randrange(3)}"
        return job

    def _noted(self, permit: Permit | None, **fields: Any) -> NewJob:
        job_id = JobId(f"01{self.seed:08d}{len(self.permits):016d}")
        self.permits[job_id] = permit
        name, key = permit or (None, "")
        return new_job(
            id=job_id,
            queue=self._queue,
            max_attempts=None,
            limit_name=name,
            limit_key=key,
            **fields,
        )

    async def _claim(self) -> None:
        kinds = _KINDS[: self._rng.choice([1, 2])]
        await self._exchange_of([], kinds=kinds, max_bytes=self._rng.choice([60, CLAIM_BYTES]))

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
            self.note_end(one, end)

    async def _together(self) -> None:
        """Make several calls at once: ends and claims of several pods, and an enqueue."""
        ended = self._some_running()
        number = self._rng.randrange(2, 5)
        shares = [ended[first::number] for first in range(number)]
        asked = [self._ask(share, self._rng.choice([1, 3, 20])) for share in shares]
        calls = [
            self._storage.jobs.exchange(self._queue, ends, demand, lease)
            for ends, demand, lease in asked
        ]
        outcomes, _ = await asyncio.gather(asyncio.gather(*calls), self._enqueue())
        for one in ended:
            self.note_end(one, done())
        claimed = [list(outcome.claimed) for outcome in outcomes]
        for some, (_, _, lease) in zip(claimed, asked, strict=True):
            self.take(some, lease, in_order=False)
        await self._take_tokens([one for some in claimed for one in some])

    async def _pass_time(self) -> None:
        self.clock.advance(self._rng.randrange(1, 5))

    async def _crash(self) -> None:
        """A pod dies. Another one returns its jobs to the queue once its beats are old."""
        lease = self._rng.choice(self._pods)
        self._pods.remove(lease)
        self.clock.advance(2 * LEASE)
        for one, of in list(self.running.values()):
            if of is lease:
                assert await revive(self._storage, one), self.says("a dead pod keeps a job")
                self.has_crashed.add(one.claim.job_id)
                self.wait_again(one)
        await self._add_pod()

    async def _cancel(self) -> None:
        """Cancel jobs that wait."""
        count = min(len(self.waiting), self._rng.randrange(1, 9))
        await self._cancel_all(self._rng.sample(sorted(self.waiting), count))

    async def _cut_short(self) -> None:
        """Claim one job of many for their size, and cancel those that would come next.

        A job that has made others of its key wait, and then does not run, must not keep the place.
        """
        name = self._rng.choice(sorted(self.at_most))
        fresh = name, f"fresh-{len(self.permits)}"
        front = [self._noted(permit, priority=-2) for permit in (None, *[fresh] * 8)]
        await self._store(front)
        await self._exchange_of(self._some_running(), 20, max_bytes=1)
        used = Counter(self.permits[job_id] for job_id in self.running)
        next_up = list[JobId]()
        for job in self.due():
            if self.room(job.job_id, used) > 0:
                used[self.permits[job.job_id]] += 1
                next_up.append(job.job_id)
        await self._cancel_all(next_up[:20])

    async def _cancel_all(self, ids: list[JobId]) -> None:
        if ids:
            await self._storage.jobs.cancel(only(*ids))
        for job_id in ids:
            del self.waiting[job_id]

    async def _set_limit(self) -> None:
        name = self._rng.choice(sorted(self.at_most))
        self.at_most[name] = self._rng.randrange(1, 6)
        await self._storage.config.set_limit(self._queue, name, self.at_most[name])

    async def _claim_all(self) -> None:
        """Claim until nothing comes. Then no key has room and a job that is due."""
        empty = 0
        while empty < 3:
            empty = 0 if await self._exchange_of([], limit=200) else empty + 1
        used = Counter(self.permits[job_id] for job_id in self.running)
        for job in self.due():
            permit = self.permits[job.job_id]
            is_full = self.room(job.job_id, used) <= 0
            assert is_full, self.says(f"{permit} has room, and {job.job_id} waits")

    async def _wake(self) -> None:
        """End a job of a full key at which others wait, while all pods sleep: one must wake."""
        await self._claim_all()
        waiting = {self.permits[job.job_id] for job in self.due()}
        ended = [one for id_, (one, _) in self.running.items() if self.permits[id_] in waiting]
        if not ended:
            return
        # Wake-ups that have been sent already are read away.
        self.clock.advance(2)
        queues = frozenset({self._queue})
        while await self._storage.jobs.wait_for_work(queues, timedelta(milliseconds=20)):
            pass
        used = Counter(self.permits[job_id] for job_id in self.running)
        permit = self.permits[ended[0].claim.job_id]
        assert permit is not None
        free = self.at_most[permit[0]] - used[permit]
        of_key = [one for one in ended if self.permits[one.claim.job_id] == permit]
        for one in of_key[: 1 - free]:
            await self._storage.jobs.finalize([Finalization(one.claim, done())])
            self.note_end(one, done())
        for _ in range(30):
            woken = await self._storage.jobs.wait_for_work(queues, timedelta(seconds=1))
            if self._queue in woken.queues:
                return
        raise AssertionError(self.says(f"no pod wakes for the next job of {permit}"))

    async def _drain(self) -> None:
        """Let everything end. No job may be left on hold, and no key may wait for others."""
        rounds = 0
        most = self._rounds()
        while self.waiting or self.running:
            self.clock.advance(10)
            await self._claim_all()
            is_idle = not self.running and bool(self.due())
            assert not is_idle, self.says(f"{len(self.waiting)} jobs are never claimed")
            rounds += 1
            assert rounds <= most, self.says(f"{len(self.waiting)} jobs wait after {rounds} ends")
            await self._finish_all()

    async def _finish_all(self) -> None:
        ended = [one for one, _ in self.running.values()]
        for start in range(0, len(ended), 200):
            part = ended[start : start + 200]
            await self._storage.jobs.finalize([Finalization(one.claim, done()) for one in part])
        self.running.clear()

    # -- inside ------------------------------------------------------------------------------

    def _rounds(self) -> int:
        """Return in how many rounds all jobs can run: as the longest line of a key, and some for
        jobs that are due later and for tokens."""
        lines = Counter(self.permits[job_id] for job_id in [*self.waiting, *self.running])
        longest = max((-(-n // self.at_most[p[0]]) for p, n in lines.items() if p), default=0)
        return longest + 2 + len(self._rates)

    def _some_running(self) -> list[ClaimedJob]:
        count = min(len(self.running), self._rng.randrange(1, self._most))
        return [self.running[job_id][0] for job_id in self._rng.sample([*self.running], count)]

    def _ends(self) -> list[Transition]:
        delay = timedelta(seconds=self._rng.randrange(4))
        return [done(), done(), done(), dead(), failed(delay), snoozed(delay)]

    def _ask(
        self,
        ended: list[ClaimedJob],
        limit: int,
        *,
        workers: int | None = None,
        kinds: tuple[str, ...] = _KINDS,
        max_bytes: int = CLAIM_BYTES,
    ) -> tuple[list[Finalization], Demand, PodLease]:
        """Return an exchange of some pod."""
        lease = self._rng.choice(self._pods)
        worker_ids = tuple(f"worker-{n}" for n in range(limit if workers is None else workers))
        demand = Demand(
            worker_ids=worker_ids, limit=limit, kinds=frozenset(kinds), max_bytes=max_bytes
        )
        return [Finalization(one.claim, done()) for one in ended], demand, lease

    async def _exchange_of(
        self,
        ended: list[ClaimedJob],
        limit: int = 0,
        *,
        kinds: tuple[str, ...] = _KINDS,
        max_bytes: int = CLAIM_BYTES,
    ) -> int:
        # Jobs that have crashed are for workers alone, others are held ahead too.
        workers = limit or self._rng.choice([0, 1, 5])
        limit = limit or max(workers, self._rng.choice([1, 2, 5, 20]))
        ends, demand, lease = self._ask(
            ended, limit, workers=workers, kinds=kinds, max_bytes=max_bytes
        )
        begin = self._begin()
        outcome = await self._storage.jobs.exchange(self._queue, ends, demand, lease)
        for one in ended:
            self.note_end(one, done())
        in_order = len(demand.kinds) == len(_KINDS)
        self.take(list(outcome.claimed), lease, in_order=in_order, begin=begin)
        await self._take_tokens(list(outcome.claimed))
        return len(outcome.claimed)

    def _begin(self) -> Place:
        """Return where the next claim begins: on PostgreSQL for a while behind dead entries."""
        cursors: ClaimCursors | None = getattr(self._storage.jobs, "_cursors", None)
        return EVERYTHING if cursors is None else cursors.of(self._queue)

    async def _take_tokens(self, claimed: list[ClaimedJob]) -> None:
        """Ask for the tokens of claimed jobs. Those that get none go back until their turn."""
        rated = [one for one in claimed if one.claim.job_id in self._rates]
        if not rated:
            return
        asks = [
            RateAsk(
                self._queue,
                self._rates[one.claim.job_id],
                had_turn=one.rate_limit == self._queue,
            )
            for one in rated
        ]
        grants = await self._storage.config.take_or_turn(asks, _DAY)
        for one, grant in zip(rated, grants, strict=True):
            assert grant is not None
            if grant.granted:
                self.note_start(self._rates[one.claim.job_id])
                continue
            end = rate_limited(grant.retry_in, rate_limit=self._queue)
            await self._storage.jobs.finalize([Finalization(one.claim, end)])
            self.note_end(one, end)
