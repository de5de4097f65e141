"""Random calls on one sequence, one after the other: never are two of the jobs free to run."""

import random
from datetime import timedelta
from typing import Literal

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import ClaimedJob, JobStatus, Line
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from tests.support.factories import claim, dead, done, failed, finish, new_job, only, register

_VERBS = ("enqueue", "claim", "end", "deliver", "deliver one", "cancel", "requeue", "restore")
_FREE = {JobStatus.PENDING, JobStatus.FAILED, JobStatus.IN_PROGRESS}
_STEPS = 60


class LineWalk:
    """A walk, and the calls so far, in which jobs have letters.

    :param most: so many jobs are enqueued at most
    """

    def __init__(
        self, storage: Storage, policy: Literal["wait", "skip", "stop"], seed: int, most: int
    ) -> None:
        self._storage = storage
        self._line = Line("k", policy)
        self._queue = f"{policy}-{seed}"
        self._dice = random.Random(seed)
        self._most = most
        self._names: dict[JobId, str] = {}
        self._claims: list[ClaimedJob] = []
        self._calls: list[str] = []

    async def run(self) -> None:
        """Make the calls, and look after each."""
        lease = await register(self._storage, queues=(self._queue,), lease_for=timedelta(hours=1))
        for _ in range(_STEPS):
            verb = self._dice.choice([*_VERBS, "requeue", "delete"])
            if verb == "enqueue":
                await self._enqueue()
            elif verb == "claim":
                self._claims += await claim(self._storage, lease, limit=5, queue=self._queue)
            elif verb == "end":
                await self._end()
            elif verb.startswith("deliver"):
                found = await self._storage.jobs.handovers(100)
                news = [each for each in found if each.child_id in self._names]
                some = news[:1] if verb == "deliver one" else news
                await self._storage.jobs.deliver([delivery(each) for each in some])
            elif self._names:
                await self._operate(verb)
            self._calls.append(verb)
            await self._look()

    async def _enqueue(self) -> None:
        count = min(self._dice.randint(1, 2), self._most - len(self._names))
        jobs = [new_job(queue=self._queue, sequence=self._line) for _ in range(count)]
        for job in jobs:
            self._names[job.id] = chr(ord("A") + len(self._names))
        await self._storage.jobs.enqueue(jobs)

    async def _end(self) -> None:
        if self._claims:
            claimed = self._claims.pop()
            how = self._dice.choice([done(), failed(), dead()])
            self._calls.append(f"{self._names[claimed.claim.job_id]} {how.status}")
            await finish(self._storage, claimed, how)

    async def _operate(self, verb: str) -> None:
        most = 1 if verb == "delete" else 8
        count = min(len(self._names), self._dice.randint(1, most))
        some = self._dice.sample(list(self._names), count)
        self._calls.append(" ".join(self._names[each] for each in some))
        await getattr(self._storage.jobs, verb)(only(*some))

    async def _look(self) -> None:
        jobs = await self._storage.jobs.get(list(self._names)) if self._names else {}
        free = [self._names[job.id] for job in jobs.values() if job.status in _FREE]
        assert len(free) <= 1, f"{free} are free to run after {self._calls}"
