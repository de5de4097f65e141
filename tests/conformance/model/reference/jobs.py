"""The job store, method by method."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

from forge_jobs.model.edges import Kin, Tally
from forge_jobs.model.edits import JobContent
from forge_jobs.model.events import TimelineEvent
from forge_jobs.model.failures import ErrorGroup, ErrorGroups, FailureSample
from forge_jobs.model.filters import BulkOutcome, JobFilter, Page
from forge_jobs.model.ids import HostId, JobId
from forge_jobs.model.jobs import After, Claim, EnqueueOutcome, Job, NewJob
from forge_jobs.model.letters import Letter
from forge_jobs.model.metrics import MINUTE, Histogram, LatencySample, MetricBucket
from forge_jobs.model.processes import Beat, HeldClaim, PodLease
from forge_jobs.model.progress import JobState, LogPage, ProgressNote
from forge_jobs.model.queues import LinePlace, QueueCounts
from forge_jobs.model.retention import Kept
from forge_jobs.model.series import FlowSample, SeriesStep
from forge_jobs.model.transitions import (
    Delivery,
    Demand,
    Exchange,
    Finalization,
    Handover,
    Revival,
    StaleClaims,
)
from tests.conformance.model.reference import (
    children,
    claims,
    editing,
    ends,
    failures,
    letters,
    operators,
    progress,
)
from tests.conformance.model.reference.enqueue import enqueue
from tests.conformance.model.reference.state import World


def _sum(histograms: Iterable[Histogram]) -> Histogram:
    together: Counter[int] = Counter()
    for each in histograms:
        together.update(each.counts)
    return Histogram(dict(together))


class ReferenceJobs:
    """``JobStore``."""

    def __init__(self, world: World) -> None:
        self._world = world

    def enqueue(self, requests: Sequence[NewJob]) -> list[EnqueueOutcome]:
        return enqueue(self._world, requests)

    def finalize(self, finalizations: Sequence[Finalization]) -> list[bool]:
        return ends.finalize(self._world, finalizations)

    def exchange(
        self, queue: str, finalizations: Sequence[Finalization], demand: Demand, lease: PodLease
    ) -> Exchange:
        settled = ends.finalize(self._world, finalizations)
        claimed = claims.claim(self._world, queue, demand, lease)
        return Exchange(tuple(settled), tuple(claimed), None)

    def record_start(self, started: Sequence[Claim]) -> list[bool]:
        return claims.record_start(self._world, started)

    def heartbeat(self, lease: PodLease, held: Sequence[HeldClaim], lease_for: timedelta) -> Beat:
        return claims.heartbeat(self._world, lease, held, lease_for)

    def release(self, released: Sequence[Claim]) -> list[bool]:
        return ends.release(self._world, released)

    def stale_claims(self, stale_after: timedelta, limit: int) -> StaleClaims:
        return ends.stale_claims(self._world, stale_after, limit)

    def revive(self, revivals: Sequence[Revival], stale_after: timedelta) -> list[bool]:
        return ends.revive(self._world, revivals, stale_after)

    # -- operators

    def cancel(
        self, which: JobFilter, *, cursor: str | None = None, limit: int = 500
    ) -> BulkOutcome:
        return operators.visit(self._world, operators.cancel, which, cursor, limit)

    def delete(
        self, which: JobFilter, *, cursor: str | None = None, limit: int = 500
    ) -> BulkOutcome:
        return operators.visit(self._world, operators.delete, which, cursor, limit)

    def requeue(
        self, which: JobFilter, *, cursor: str | None = None, limit: int = 500
    ) -> BulkOutcome:
        return operators.requeue_all(self._world, which, cursor, limit)

    def restore(
        self, which: JobFilter, *, cursor: str | None = None, limit: int = 500
    ) -> BulkOutcome:
        verb = operators.restorer(self._world)
        return operators.requeue_all(self._world, which, cursor, limit, verb)

    def run_now(
        self, which: JobFilter, *, cursor: str | None = None, limit: int = 500
    ) -> BulkOutcome:
        return operators.visit(self._world, operators.run_now, which, cursor, limit)

    def release_held(
        self, which: JobFilter, *, cursor: str | None = None, limit: int = 500
    ) -> BulkOutcome:
        return operators.visit(self._world, operators.release_held, which, cursor, limit)

    def edit(self, job_id: JobId, *, token: int, before: JobContent, after: JobContent) -> None:
        editing.edit(self._world, job_id, token, before, after)

    def release_struck(self, in_force: Collection[str], limit: int) -> int:
        return operators.release_struck(self._world, in_force)

    def expire(self, limit: int) -> int:
        return operators.expire(self._world)

    # -- children

    def handovers(self, limit: int) -> list[Handover]:
        return children.handovers(self._world)

    def deliver(self, deliveries: Sequence[Delivery]) -> int:
        return children.deliver(self._world, deliveries)

    # -- letters

    def letters(
        self, limit: int, *, skip: Collection[str] = (), not_to: Collection[str] = ()
    ) -> list[Letter]:
        return letters.letters(self._world, skip, not_to)

    def forget_letters(self, forgotten: Sequence[Letter]) -> None:
        letters.forget(self._world, forgotten)

    # -- what runs tell

    def note_progress(self, notes: Sequence[ProgressNote]) -> list[bool]:
        return progress.note_progress(self._world, notes)

    def first_time(self, claim: Claim, step: str) -> bool:
        return progress.first_time(self._world, claim, step)

    def save_checkpoint(self, claim: Claim, text: str) -> bool:
        return progress.save_checkpoint(self._world, claim, text)

    def checkpoint(self, job_id: JobId) -> str | None:
        return progress.checkpoint(self._world, job_id)

    def states(self, ids: Sequence[JobId]) -> dict[JobId, JobState]:
        return progress.states(self._world, ids)

    def job_log(
        self, job_id: JobId, *, attempt: int | None = None, after: int = 0, limit: int = 1000
    ) -> LogPage:
        return progress.job_log(self._world, job_id, attempt, after, limit)

    # -- reads and bookkeeping

    def get(self, ids: Sequence[JobId]) -> dict[JobId, Job]:
        found = (self._world.jobs.get(job_id) for job_id in ids)
        return {job.id: job.view() for job in found if job is not None}

    def place(self, queue: str, job_id: JobId) -> LinePlace | None:
        return operators.place(self._world, queue, job_id)

    def await_also(self, job_id: JobId, after: Sequence[After]) -> None:
        children.await_also(self._world, job_id, after)

    def kin(self, ids: Sequence[JobId], *, limit: int = 100) -> dict[JobId, Kin]:
        return children.kin(self._world, ids, limit)

    def tallies(self, ids: Sequence[JobId]) -> dict[JobId, Tally]:
        return children.tallies(self._world, ids)

    def counts(self, queues: Sequence[str] | None = None) -> dict[str, QueueCounts]:
        names = self._world.queues if queues is None else queues
        return {name: operators.counts(self._world, name) for name in names}

    def append_events(self, events: Sequence[TimelineEvent]) -> list[TimelineEvent]:
        self._world.events += events
        return []

    def events(
        self, *, job_id: JobId | None = None, queue: str | None = None, limit: int
    ) -> list[TimelineEvent]:
        found = [
            event
            for event in self._world.events
            if job_id in {None, event.job_id} and queue in {None, event.queue}
        ]
        return sorted(found, key=lambda event: event.at, reverse=True)[:limit]

    def add_latencies(
        self, host_id: HostId, samples: Sequence[LatencySample]
    ) -> list[LatencySample]:
        for sample in samples:
            for name, histogram in (("processing", sample.processing), ("total", sample.total)):
                for bucket, count in histogram.counts.items():
                    self._world.latencies[sample.queue, sample.minute, name, bucket] += count
        return []

    def add_failures(self, samples: Sequence[FailureSample]) -> list[FailureSample]:
        self._world.failures += samples
        return []

    def add_flows(self, samples: Sequence[FlowSample]) -> list[FlowSample]:
        self._world.flows += samples
        return []

    def series(
        self, since: datetime, until: datetime, *, queue: str, kind: str
    ) -> list[SeriesStep]:
        minutes: defaultdict[datetime, list[FlowSample]] = defaultdict(list)
        for each in self._world.flows:
            if (each.queue, each.kind) == (queue, kind) and since <= each.minute < until:
                minutes[each.minute].append(each)
        return [
            SeriesStep(
                at=minute,
                length=MINUTE,
                counts=dict(sum((Counter(each.counts) for each in found), Counter())),
                delay=_sum(each.delay for each in found),
                processing=_sum(each.processing for each in found),
                total=_sum(each.total for each in found),
            )
            for minute, found in sorted(minutes.items())
        ]

    def error_groups(
        self,
        since: datetime,
        until: datetime,
        *,
        queue: str | None = None,
        step: timedelta = MINUTE,
        limit: int,
    ) -> ErrorGroups:
        found = failures.groups(self._world.failures, since, until, step)
        named = [group for group in found if group.counts and queue in {None, group.queue}]
        return ErrorGroups(tuple(named[:limit]), cursor=None)

    def error_group(
        self, queue: str, group: str, since: datetime, until: datetime
    ) -> ErrorGroup | None:
        found = failures.groups(self._world.failures, since, until, MINUTE)
        named = [each for each in found if (each.queue, each.id) == (queue, group)]
        return named[0] if named else None

    def metrics(self, queue: str, since: datetime, until: datetime) -> list[MetricBucket]:
        world = self._world
        written = {(of, minute) for of, minute, _ in world.counts}
        written |= {(of, minute) for of, minute, _, _ in world.latencies}
        return [
            MetricBucket(
                queue=queue,
                minute=minute,
                counts={
                    name: count
                    for (of, at, name), count in world.counts.items()
                    if (of, at) == (queue, minute)
                },
                processing=self._histogram(queue, minute, "processing"),
                total=self._histogram(queue, minute, "total"),
            )
            for of, minute in sorted(written)
            if of == queue and since <= minute < until
        ]

    def _histogram(self, queue: str, minute: datetime, name: str) -> Histogram:
        return Histogram(
            {
                bucket: count
                for (of, at, what, bucket), count in self._world.latencies.items()
                if (of, at, what) == (queue, minute, name)
            }
        )

    def roll_up(self, limit: int) -> int:
        """Roll up. The number of rows is the store's affair, and the sums stay."""
        return 0

    def cleanup(self, limit: int, kept: Kept) -> int:
        """As :meth:`roll_up`: what is gone is seen by reading."""
        operators.cleanup(self._world, limit, kept)
        return 0

    # Last, because the name hides the builtin from the annotations below.

    def list(self, which: JobFilter, *, cursor: str | None = None, limit: int = 50) -> Page:
        return operators.list_jobs(self._world, which, cursor, limit)
