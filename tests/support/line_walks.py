"""Random calls on one sequence, one after the other: never are two of the jobs free to run.

In the end none of them waits for ever.
"""

import random
from contextlib import suppress
from datetime import timedelta
from typing import Literal

from forge_jobs.errors import Conflict
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import ACTIVE, After, ClaimedJob, JobStatus, Line
from forge_jobs.model.processes import PodLease
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from tests.support.factories import claim, dead, done, failed, finish, new_job, only, register
from tests.support.lines import tell

_VERBS = ("enqueue", "claim", "end", "deliver", "deliver one", "cancel", "requeue", "restore")
_OF_NAMES = ("enqueue", "release_held", "await_also", "await_also")
_RULES: tuple[Literal["cancel", "continue", "hold", "note"], ...] = (
    "cancel",
    "continue",
    "hold",
    "note",
)
_FREE = {JobStatus.PENDING, JobStatus.FAILED, JobStatus.IN_PROGRESS}
_STEPS = 60


class LineWalk:
    """A walk, and the calls so far, in which jobs have letters.

    :param most: so many jobs are enqueued at most
    :param names: jobs name others of the sequence as parents, too
    """

    def __init__(
        self,
        storage: Storage,
        policy: Literal["wait", "skip", "stop"],
        seed: int,
        most: int,
        *,
        names: bool = False,
    ) -> None:
        self._storage = storage
        self._line = Line("k", policy)
        self._queue = f"{policy}-{seed}-{names}"
        self._dice = random.Random(seed)
        self._most = most
        self._verbs = [*_VERBS, "requeue", "delete", *(_OF_NAMES if names else ())]
        self._has_names = names
        self._names: dict[JobId, str] = {}
        self._claims: list[ClaimedJob] = []
        self._calls: list[str] = []

    async def run(self) -> None:
        """Make the calls, and look after each."""
        lease = await register(self._storage, queues=(self._queue,), lease_for=timedelta(hours=1))
        for _ in range(_STEPS):
            verb = self._dice.choice(self._verbs)
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
            elif verb == "await_also":
                await self._await_also()
            elif self._names:
                await self._operate(verb)
            self._calls.append(verb)
            await self._look()
        await self._come_to_an_end(lease)

    async def _enqueue(self) -> None:
        count = min(self._dice.randint(1, 2), self._most - len(self._names))
        jobs = [
            new_job(queue=self._queue, sequence=self._line, after=await self._some_parents())
            for _ in range(count)
        ]
        for job in jobs:
            self._names[job.id] = chr(ord("A") + len(self._names))
        await self._storage.jobs.enqueue(jobs)

    async def _some_parents(self) -> tuple[After, ...]:
        stored = await self._stored() if self._has_names else []
        some = self._dice.sample(stored, min(len(stored), self._dice.choice([0, 1, 1, 2])))
        found = tuple(After(each, self._dice.choice(_RULES)) for each in some)
        self._calls += [f"after {self._names[each.job_id]} {each.on_failure}" for each in found]
        return found

    async def _await_also(self) -> None:
        stored = await self._stored()
        if len(stored) > 1:
            child, parent = self._dice.sample(stored, 2)
            edge = After(parent, self._dice.choice(_RULES))
            # A caller that makes a circle has what it asked for.
            if child not in await self._before(parent):
                self._calls.append(f"{self._names[child]} after {self._names[parent]}")
                with suppress(Conflict):
                    await self._storage.jobs.await_also(child, [edge])

    async def _before(self, job_id: JobId) -> set[JobId]:
        """Return all that come before a job, also by edges that have settled."""
        found, ahead = set[JobId](), [job_id]
        while ahead:
            parents = await self._storage.jobs.parents(ahead)
            ahead = [each for of in parents.values() for each in of if each not in found]
            found.update(ahead)
        return found

    async def _stored(self) -> list[JobId]:
        jobs = await self._storage.jobs.get(list(self._names)) if self._names else {}
        return [each for each in self._names if each in jobs]

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

    async def _come_to_an_end(self, lease: PodLease) -> None:
        """Bring every job back, and expect that none waits for what never comes."""
        while self._claims:
            await finish(self._storage, self._claims.pop(), done())
        while self._names:
            for verb in ("requeue", "release_held"):
                await tell(self._storage)
                await getattr(self._storage.jobs, verb)(only(*self._names))
                await self._look()
            await tell(self._storage)
            claimed = await claim(self._storage, lease, limit=5, queue=self._queue)
            if not claimed:
                break
            for each in claimed:
                await finish(self._storage, each, done())
        jobs = await self._storage.jobs.get(list(self._names)) if self._names else {}
        left = [self._names[job.id] for job in jobs.values() if job.status in ACTIVE]
        assert not left, f"{left} wait for ever after {self._calls}"

    async def _look(self) -> None:
        jobs = await self._storage.jobs.get(list(self._names)) if self._names else {}
        free = [self._names[job.id] for job in jobs.values() if job.status in _FREE]
        assert len(free) <= 1, f"{free} are free to run after {self._calls}"
