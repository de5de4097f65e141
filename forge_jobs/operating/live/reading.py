"""Reads what changes, for all viewers at once, within three calls of the store a second."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from msgspec import Struct, field, structs

from forge_jobs.errors import PartlyUnavailable
from forge_jobs.model.ids import JobId
from forge_jobs.model.looks import FleetLook
from forge_jobs.model.processes import PodState
from forge_jobs.model.progress import JobState
from forge_jobs.model.queues import QueueCounts, QueueState
from forge_jobs.operating.live.documents import LivePod, LiveQueue
from forge_jobs.operating.settings.serving import NO_COUNTS, service
from forge_jobs.operating.snapshots.shared import Reader
from forge_jobs.policy.judgement.problems.problem import Problem

EVERY = 1.0
"""Seconds between two readings, at least. Each reads the states of jobs that are looked at."""

COUNTS_EVERY = 2.0
"""Seconds between two counts of all jobs: one call."""

FLEET_EVERY = 5.0
"""Seconds between two reads of queues, pods and the store's time: one call."""

PROBLEMS_EVERY = 30.0
"""Seconds between two lists of problems: up to seven calls."""

JOBS_AT_ONCE = 1_000
"""Jobs of one reading. Of more, each reading takes the next ones in turn."""

_SAME = timedelta(seconds=2)
"""Two estimates of one instant differ by less: both come from ages that were read apart."""

_LONG_AGO = datetime.min.replace(tzinfo=UTC)

V = TypeVar("V")


class Versioned(Struct, Generic[V], frozen=True):
    """A value, and the version of the state that brought the value."""

    version: int
    value: V


class Now(Struct):
    """The newest state that is known. One for all viewers: no viewer changes anything here.

    :param version: grows with each reading that found a change
    :param renamed: the version in which a queue came or went
    :param at: the store's time of the last reading. None before the first
    :param fleet_at: the store's time before the last read of queues and pods
    :param counts_at: the store's time before the last count
    :param problems: None: not read yet
    :param jobs: of all ids that are looked at. None: no such job
    """

    version: int = 0
    renamed: int = 0
    at: datetime | None = None
    fleet_at: datetime = _LONG_AGO
    counts_at: datetime = _LONG_AGO
    queues: dict[str, Versioned[LiveQueue]] = field(default_factory=dict)
    pods: Versioned[tuple[LivePod, ...]] = Versioned(0, ())
    problems: Versioned[tuple[Problem, ...]] | None = None
    jobs: dict[JobId, Versioned[JobState | None]] = field(default_factory=dict)


class LiveReader:
    """Reads the store at the pace that the constants of this module say.

    The pace holds for any number of viewers, and when viewers come and go.

    :param reader: shared with pages and scrapes. What those have just read is not read again
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._clock = reader.clock
        self._due: dict[str, float] = {}
        self._fleet: FleetLook | None = None
        self._counts: Mapping[str, QueueCounts] | None = None
        self._turn = 0
        self.now = Now()

    async def read(self, jobs: Sequence[JobId], *, with_problems: bool) -> None:
        """Read what is due. Each part is known as soon as the store has answered.

        :param jobs: ids that viewers look at
        :param with_problems: a viewer may see problems
        :raises ForgeJobsError: the store does not answer. What was read before stays
        """
        if self._is_due("fleet"):
            fleet = self._fleet = await self.reader.fleet()
            self.now.pods = self._newer(self.now.pods, tuple(map(_pod, fleet.pods)))
            self._take_queues()
            self.now.fleet_at = fleet.now
            self._put_off("fleet", FLEET_EVERY)
        at = await self.reader.now(float("inf"))
        if self._is_due("counts"):
            self._counts = await self.reader.counts()
            self.now.counts_at = self.reader.counted_at()
            self._take_queues()
            self._put_off("counts", COUNTS_EVERY)
        await self._read_jobs(jobs)
        if with_problems and self._is_due("problems"):
            # Before the calls: a list that fails in the middle costs as much as one that does not.
            self._put_off("problems", PROBLEMS_EVERY)
            found = await self.reader.problems()
            self.now.problems = self._newer(self.now.problems, tuple(found))
        self.now.at = at

    def _is_due(self, name: str) -> bool:
        moment = self._clock()
        # A reading that comes a little early by the clock of the loop is on time.
        return moment >= self._due.get(name, moment) - EVERY / 10

    def _put_off(self, name: str, every: float) -> None:
        self._due[name] = self._clock() + every

    def _newer(self, before: Versioned[V] | None, value: V) -> Versioned[V]:
        """Return the value with the version that brought the value."""
        if before is not None and before.value == value:
            return before
        self.now.version += 1
        return Versioned(self.now.version, value)

    def _take_queues(self) -> None:
        if self._counts is None or self._fleet is None:
            return
        before, kept = self.now.queues, {}
        for state in self._fleet.queues:
            name = state.name
            counts = self._counts.get(name, NO_COUNTS)
            queue = _queue(state, counts, self._fleet.pods, self.now.counts_at)
            known = before.get(name)
            kept[name] = self._newer(known, queue if known is None else _steady(queue, known.value))
        if before.keys() != kept.keys():
            self.now.version += 1
            self.now.renamed = self.now.version
        self.now.queues = kept

    async def _read_jobs(self, jobs: Sequence[JobId]) -> None:
        """Read the states of the jobs that are looked at. Of too many the next ones in turn."""
        known = self.now.jobs
        if len(jobs) > JOBS_AT_ONCE:
            self._turn %= len(jobs)
            jobs_now = [*jobs[self._turn :], *jobs[: self._turn]][:JOBS_AT_ONCE]
            self._turn += JOBS_AT_ONCE
        else:
            jobs_now = list(jobs)
        for gone in known.keys() - set(jobs):
            del known[gone]
        if not jobs_now:
            return
        try:
            states: Mapping[JobId, JobState] = await self.reader.storage.jobs.states(jobs_now)
        except PartlyUnavailable as error:
            states = error.found
            jobs_now = [each for each in jobs_now if each not in error.unknown]
        for each in jobs_now:
            known[each] = self._newer(known.get(each), states.get(each))


def _pod(state: PodState) -> LivePod:
    return LivePod(
        host_id=state.pod.host_id,
        label=state.pod.label,
        standing=state.standing,
        slots={name: each.grant for name, each in sorted(state.slots.items())},
        in_progress=dict(sorted(state.in_progress.items())),
    )


def _queue(
    state: QueueState, counts: QueueCounts, pods: Sequence[PodState], at: datetime
) -> LiveQueue:
    serving = service(state, counts, pods)
    oldest = counts.oldest_due_for
    return LiveQueue(
        name=state.name,
        by_status={str(status): number for status, number in counts.by_status.items()},
        more=counts.more,
        due=counts.due,
        held=counts.held,
        running=counts.running,
        oldest_due_since=None if oldest is None else at - oldest,
        granted=serving.granted,
        pods=serving.pods,
        max_workers=state.settings.max_workers,
        paused=state.paused,
        cooling=state.cooldown_remaining > timedelta(0),
        unserved=serving.unserved,
        standing=serving.standing,
    )


def _steady(queue: LiveQueue, before: LiveQueue) -> LiveQueue:
    """The queue with the estimate of before where both mean the same instant."""
    since, known = queue.oldest_due_since, before.oldest_due_since
    if since is None or known is None or abs(since - known) > _SAME:
        return queue
    return structs.replace(queue, oldest_due_since=known)
