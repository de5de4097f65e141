"""The notes that the simulation of admission keeps of its jobs, and what it finds wrong."""

import math
from collections import Counter, defaultdict
from datetime import timedelta
from typing import NamedTuple

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import ClaimedJob
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Transition
from forge_jobs.storage.sql.postgres.short.claim_cursors import EVERYTHING

Permit = tuple[str, str]

TOKENS, PER_US = 3, 6_000_000
"""Of each bucket: so many starts in such a time."""


class Waiting(NamedTuple):
    """A job that waits, by its place in the queue."""

    priority: int
    run_at: int
    job_id: JobId


class Notes:
    """Jobs that wait and jobs that run, noted from the answers of the store alone.

    :param seed: named by each finding
    """

    def __init__(self, clock: ManualClock, seed: int) -> None:
        self.clock = clock
        self.seed = seed
        self.at_most: dict[str, int] = {}
        self.permits: dict[JobId, Permit | None] = {}
        self.waiting: dict[JobId, Waiting] = {}
        self.running: dict[JobId, tuple[ClaimedJob, PodLease]] = {}
        self.has_crashed: set[JobId] = set()
        self._started: defaultdict[str, list[int]] = defaultdict(list)

    def room(self, job_id: JobId, used: Counter[Permit | None]) -> float:
        """Return how many more jobs of the job's key may run, infinity without a limit."""
        permit = self.permits[job_id]
        return math.inf if permit is None else self.at_most[permit[0]] - used[permit]

    def note_end(self, one: ClaimedJob, end: Transition) -> None:
        """Note the end of a claim."""
        if end.status.value in ("pending", "failed"):
            self.wait_again(one, int((end.delay or timedelta(0)).total_seconds() * 1e6))
        else:
            del self.running[one.claim.job_id]

    def wait_again(self, one: ClaimedJob, delay_us: int = 0) -> None:
        """Note that a claimed job waits again."""
        job_id = one.claim.job_id
        del self.running[job_id]
        self.waiting[job_id] = Waiting(one.priority, self.clock.time_us() + delay_us, job_id)

    def note_start(self, key: str) -> None:
        """Note that a job has got its token: no span may have more than the rate allows."""
        now, starts = self.clock.time_us(), self._started[key]
        starts.append(now)
        for number, at in enumerate(reversed(starts[-30:]), 1):
            is_allowed = number * PER_US <= TOKENS * (PER_US + now - at)
            assert is_allowed, self.says(f"{number} tokens of {key} in {now - at} microseconds")

    def take(
        self,
        claimed: list[ClaimedJob],
        lease: PodLease,
        *,
        in_order: bool = True,
        begin: tuple[int, int] = EVERYTHING,
    ) -> None:
        """Note claims of a pod: they waited, pass no limit, and came in the order of their keys.

        :param begin: the priority and due time at which the claims began. Jobs before may wait
        """
        due = [job for job in self.due() if (job.priority, job.run_at) >= begin]
        for one in claimed:
            job_id = one.claim.job_id
            assert job_id in self.waiting, self.says(f"{job_id} does not wait, and was claimed")
            del self.waiting[job_id]
            self.running[job_id] = one, lease
        used = Counter(self.permits[job_id] for job_id in self.running)
        taken = {one.claim.job_id for one in claimed}
        lines = dict[Permit, list[JobId]]()
        for job_id in taken:
            if (permit := self.permits[job_id]) is not None:
                most = self.at_most[permit[0]]
                is_within = used[permit] <= most
                assert is_within, self.says(f"{used[permit]} of {permit}, {most} may run")
                lines[permit] = []
        if in_order:
            self._hold_to_order(lines, due, taken)

    def _hold_to_order(
        self, lines: dict[Permit, list[JobId]], due: list[Waiting], taken: set[JobId]
    ) -> None:
        """Jobs of a key are claimed in the order of the queue. Those that crashed run alone."""
        for job in due:
            permit = self.permits[job.job_id]
            if permit in lines:
                lines[permit].append(job.job_id)
        for permit, line in lines.items():
            if self.has_crashed.isdisjoint(line):
                first = set(line[: len(taken.intersection(line))])
                assert first <= taken, self.says(f"{permit} is out of order")

    def due(self) -> list[Waiting]:
        """Return the jobs that wait and are due, in the order of the queue."""
        now = self.clock.time_us()
        return sorted(job for job in self.waiting.values() if job.run_at <= now)

    def says(self, text: str) -> str:
        """Return a finding with the seed, which repeats the run."""
        return f"seed {self.seed}: {text}"
