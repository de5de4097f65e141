"""Reads what changes, for all viewers at once, within three calls of the store a second."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from msgspec import Struct, field, structs

from forge_jobs.errors import PartlyUnavailable
from forge_jobs.model.ids import JobId
from forge_jobs.model.processes import PodState
from forge_jobs.model.progress import JobState
from forge_jobs.model.queues import ENDED_COUNTED, QueueCounts, QueueState
from forge_jobs.operating.live.documents import LivePod, LiveQueue
from forge_jobs.operating.settings.queues import NO_COUNTS, is_unserved, standing
from forge_jobs.operating.snapshots.reading import problems as read_problems
from forge_jobs.policy.judgement.problems.problem import Problem
from forge_jobs.storage.protocols import Storage

EVERY = 1.0
"""Seconds between two readings, at least. Each reads the states of jobs that are looked at."""

COUNTS_EVERY = 2.0
"""Seconds between two counts of all jobs: one call."""

FLEET_EVERY = 5.0
"""Seconds between two reads of queues, pods and the store's time: three calls."""

PROBLEMS_EVERY = 30.0
"""Seconds between two lists of problems: at most ten calls."""

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

    :param clock: monotonic seconds
    """

    def __init__(self, storage: Storage, clock: Callable[[], float]) -> None:
        self._storage = storage
        self._clock = clock
        self._due: dict[str, float] = {}
        self._states: list[QueueState] = []
        self._pods: list[PodState] = []
        self._counts: Mapping[str, QueueCounts] | None = None
        self._known = (_LONG_AGO, 0.0)
        self._turn = 0
        self.now = Now()

    async def read(self, jobs: Sequence[JobId], *, with_problems: bool) -> None:
        """Read what is due. Each part is known as soon as the store has answered.

        :param jobs: ids that viewers look at
        :param with_problems: a viewer may see problems
        :raises ForgeJobsError: the store does not answer. What was read before stays
        """
        if self._is_due("fleet"):
            self._known = (await self._storage.cron.now(), self._clock())
            self._states = await self._storage.config.queues()
            self._pods = await self._storage.procs.pods()
            self._take_pods()
            self._take_queues()
            self.now.fleet_at = self._known[0]
            self._put_off("fleet", FLEET_EVERY)
        at = self._known[0] + timedelta(seconds=self._clock() - self._known[1])
        if self._is_due("counts"):
            self._counts = await self._storage.jobs.counts(ended_at_most=ENDED_COUNTED)
            self.now.counts_at = at
            self._take_queues()
            self._put_off("counts", COUNTS_EVERY)
        await self._read_jobs(jobs)
        if with_problems and self._is_due("problems"):
            # Before the calls: a list that fails in the middle costs as much as one that does not.
            self._put_off("problems", PROBLEMS_EVERY)
            found = await read_problems(self._storage)
            self.now.problems = self._newer(self.now.problems, found)
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

    def _take_pods(self) -> None:
        self.now.pods = self._newer(self.now.pods, tuple(_pod(each) for each in self._pods))

    def _take_queues(self) -> None:
        if self._counts is None:
            return
        before, kept = self.now.queues, {}
        for state in self._states:
            name = state.name
            counts = self._counts.get(name, NO_COUNTS)
            queue = _queue(state, counts, self._pods, self.now.counts_at)
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
            states: Mapping[JobId, JobState] = await self._storage.jobs.states(jobs_now)
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
    serving = [
        pod.slots[state.name]
        for pod in pods
        if state.name in pod.slots and pod.lease_remaining > timedelta(0)
    ]
    unserved = is_unserved(counts, len(serving))
    oldest = counts.oldest_due_for
    return LiveQueue(
        name=state.name,
        by_status={str(status): number for status, number in counts.by_status.items()},
        more=counts.more,
        due=counts.due,
        held=counts.held,
        running=counts.running,
        oldest_due_since=None if oldest is None else at - oldest,
        granted=sum(each.grant for each in serving),
        pods=len(serving),
        max_workers=state.settings.max_workers,
        paused=state.paused,
        cooling=state.cooldown_remaining > timedelta(0),
        unserved=unserved,
        standing=standing(state, unserved=unserved),
    )


def _steady(queue: LiveQueue, before: LiveQueue) -> LiveQueue:
    """The queue with the estimate of before where both mean the same instant."""
    since, known = queue.oldest_due_since, before.oldest_due_since
    if since is None or known is None or abs(since - known) > _SAME:
        return queue
    return structs.replace(queue, oldest_due_since=known)
