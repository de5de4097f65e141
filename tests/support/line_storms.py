"""Many writes of every sort on the same few sequences, at once and in any order."""

import random
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Literal, get_args

import anyio

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Locked, Unavailable
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Line
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Finalization
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from tests.support.factories import claim, dead, done, failed, finish, new_job, only, register
from tests.support.lines import claim_due, tell

Policy = Literal["wait", "skip", "stop"]
_CALLERS = 8
_STEPS = 15


class LineStorm:
    """A storm, and the notes by which jobs that run beside each other are found.

    :param stores: bundles of one store, which the callers take in turns
    :param clock: of a store where a call has several steps. One that gives up may have kept
        children from hearing of an end, which the sweep mends
    """

    def __init__(
        self, stores: Sequence[Storage], seed: int, clock: ManualClock | None = None
    ) -> None:
        self._stores = stores
        self._clock = clock
        self._seed = seed
        self._dice = random.Random(seed)
        self._keys: dict[JobId, str] = {}
        self._stored: list[JobId] = []
        self._running: dict[str, JobId] = {}

    async def run(self) -> None:
        """Let callers write at once, until all have done their steps."""
        for _ in range(4):
            await self._enqueue(self._stores[0])
        async with anyio.create_task_group() as group:
            for number in range(_CALLERS):
                store = self._stores[number % len(self._stores)]
                group.start_soon(self._go_on, store, random.Random(self._seed + number))

    async def end(self) -> None:
        """Bring every job back and to an end, and expect that no two of a key are ever due."""
        store = self._stores[0]
        if self._clock is not None:
            for _ in range(2):
                await store.jobs.sweep(10_000)
                self._clock.advance(timedelta(minutes=2))
        lease = await register(store, lease_for=timedelta(hours=1))
        while True:
            for verb in (store.jobs.requeue, store.jobs.release_held):
                # A deleted job stops a line of ``stop``.
                await tell(store)
                await verb(JobFilter(ids=tuple(self._stored)), limit=1_000)
            if not (claimed := await claim_due(store, lease)):
                break
            keys = [self._keys[each.claim.job_id] for each in claimed]
            assert len(keys) == len(set(keys)), f"beside each other: {keys}"
            for each in claimed:
                await finish(store, each, done())
        stored = await store.jobs.get(self._stored)
        left = [job.id for job in stored.values() if job.status != "done"]
        assert not left, f"jobs that never run: {left}"

    async def _go_on(self, store: Storage, dice: random.Random) -> None:
        lease = await register(store, lease_for=timedelta(hours=1))
        verbs = ["enqueue", "work", "work", "deliver", "cancel", "requeue", "requeue", "delete"]
        for _ in range(_STEPS):
            verb = dice.choice([*verbs, "restore"])
            if verb == "enqueue":
                await self._enqueue(store)
            elif verb == "work":
                await self._work(store, lease, dice)
            elif verb == "deliver":
                news = await store.jobs.handovers(100)
                await store.jobs.deliver([delivery(each) for each in news])
            else:
                some = self._some(2 if verb == "delete" else 30)
                with suppress(Unavailable):  # Locked, or others change the same jobs all the time
                    await getattr(store.jobs, verb)(some)

    def _some(self, count: int) -> JobFilter:
        """Name some jobs, also those that are just being stored."""
        return only(*self._dice.sample(sorted(self._keys), min(count, len(self._keys))))

    async def _enqueue(self, store: Storage) -> None:
        policies = get_args(Policy)
        keys = [self._dice.choice(policies) for _ in range(9)]
        jobs = [new_job(sequence=Line(key, key)) for key in keys]
        # Before the call: once the jobs are stored another caller may claim them.
        self._keys |= {job.id: key for job, key in zip(jobs, keys, strict=True)}
        with suppress(Locked):  # by a batch that takes longer than an enqueue waits
            await store.jobs.enqueue(jobs)
            self._stored += (job.id for job in jobs)

    async def _work(self, store: Storage, lease: PodLease, dice: random.Random) -> None:
        claimed = await claim(store, lease, limit=5)
        for each in claimed:
            key = self._keys[each.claim.job_id]
            assert key not in self._running, f"{each.claim.job_id} beside {self._running[key]}"
            self._running[key] = each.claim.job_id
        await anyio.lowlevel.checkpoint()
        for each in claimed:
            # Before the call: once the end is stored the next one may be claimed.
            del self._running[self._keys[each.claim.job_id]]
        ends = [
            Finalization(each.claim, dice.choice([done(), failed(), dead()])) for each in claimed
        ]
        while ends:
            # Another call may keep a job locked. Then the end is to be repeated.
            answers = await store.jobs.finalize(ends)
            ends = [end for end, answer in zip(ends, answers, strict=True) if answer is None]
