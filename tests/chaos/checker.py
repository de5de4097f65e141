"""Invariants of every run, whatever was done: counted from both ledgers and the store."""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, Job, JobStatus
from tests.chaos.limited import accepted_late, passed_in
from tests.chaos.record import Record, wall_ms
from tests.chaos.sequenced import crossed_in
from tests.support.ledger import Ledger, Run

_CLOCKS_APART_MS = 20.0
"""The store's clock and the handlers' are of one machine, but not read at one instant."""

_NO_ENDS = frozenset(
    {
        Cause.ENQUEUED,
        Cause.CANCELLED,
        Cause.EXPIRED,
        Cause.PARENT_FAILED,
        Cause.PARENTS_SETTLED,
        Cause.REQUEUED,
        Cause.RESTORED,
    }
)
"""Counts of jobs without a claim. A cancelled job may have had one, or not."""

_ENDS = tuple(cause.value for cause in Cause if cause not in _NO_ENDS)
"""Ends of claims. No run has strikes: a job is struck where its pod could not read any yet."""


@dataclass(frozen=True)
class Verdict:
    """Ids of jobs, or of processes, that show something that must never be. Empty after a good run.

    :ivar lost: acknowledged, and never ran to the end or is not done in the store
    :ivar unexpected: ran, or is stored, and was never sent
    :ivar overlapping: two handlers at once, neither of a frozen process
    :ivar rerun: started after the success was stored, not in a frozen process
    :ivar repeated: ran again although the first owner was sound and nothing was done to the store
    :ivar burnt: an attempt was used up by a stop in good order
    :ivar exits: processes that ended without being asked to
    :ivar bad_stops: processes that ended otherwise after SIGTERM than with code 0 or, when
        something could not be stored in time, 1
    :ivar stopped: handlers stopped by the loss of a shard without their queue, in a process that
        did not give all its jobs up
    :ivar again: ran again for the same reason, or after it
    :ivar miscounted: counters of the store that its jobs contradict
    :ivar crowded: keys of which more handlers ran at once than may, those of frozen processes apart
    :ivar late: the stored result is that of another claim than the last
    :ivar crossed: ran beside or before an earlier job of its sequence, in no frozen process
    :ivar left: processes that ended with code 0 and whose pods are still in the store
    """

    lost: list[str]
    unexpected: list[str]
    overlapping: list[str]
    rerun: list[str]
    repeated: list[str]
    burnt: list[str]
    exits: list[int]
    bad_stops: list[int]
    left: list[int]
    stopped: list[str]
    again: list[str]
    miscounted: list[str]
    crowded: list[str]
    late: list[str]
    crossed: list[str]

    @property
    def is_good(self) -> bool:
        """Nothing was found."""
        return not any(getattr(self, field.name) for field in fields(self))


def judge(
    record: Record,
    ledger: Ledger,
    stored: Mapping[JobId, Job],
    counters: Mapping[str, Mapping[str, int]],
    known: Collection[int] = (),
) -> Verdict:
    """Hold the producer's notes, the handlers' ledger and the store against each other.

    :param counters: those of each queue
    :param known: processes of the pods that the store knows at the end
    """
    acked = {job_id for job_id, sending in record.sendings.items() if sending.acked_ns}
    done = {job_id for job_id, job in stored.items() if job.status is JobStatus.DONE}
    by_job = ledger.by_job()
    # An operator may cancel a job, and let it run again, at any moment of a run.
    untouched = {
        job_id: runs
        for job_id, runs in by_job.items()
        if not (job_id in record.sendings and record.sendings[job_id].may_come_late)
    }
    return Verdict(
        lost=sorted(acked - (ledger.ended() & done)),
        unexpected=sorted((ledger.started() | set(stored)) - set(record.sendings)),
        overlapping=ledger.overlaps(but_of=record.frozen, deaths=record.kills),
        rerun=[
            job_id for job_id in done if _is_rerun(by_job[job_id], stored[JobId(job_id)], record)
        ],
        repeated=[job_id for job_id, runs in untouched.items() if _is_repeated(runs, record)],
        burnt=[job_id for job_id, runs in untouched.items() if _is_burnt(runs, record)],
        exits=record.own_exits,
        bad_stops=[
            stop.process_id for stop in record.stops.values() if stop.exit_code not in (0, 1)
        ],
        left=[
            stop.process_id
            for stop in record.stops.values()
            if stop.exit_code == 0 and stop.process_id in known
        ],
        stopped=[job_id for job_id, runs in by_job.items() if _is_stopped(job_id, runs, record)],
        again=[job_id for job_id, runs in by_job.items() if _is_again(job_id, runs, record)],
        miscounted=_miscounted(stored, counters),
        crowded=passed_in(ledger, record, but_of=record.frozen),
        late=accepted_late(stored, record),
        crossed=crossed_in(ledger, record, but_of=record.frozen),
    )


def _is_stopped(job_id: str, runs: list[Run], record: Record) -> bool:
    """Return whether a handler was stopped while only shards without its queue were down."""
    return any(
        run.cut_ns
        and record.was_sound(run.process_id)
        and record.is_elsewhere(job_id, run.cut_ns, run.cut_ns)
        for run in runs
    )


def _is_again(job_id: str, runs: list[Run], record: Record) -> bool:
    """Return whether a run followed one that only shards without its queue can have disturbed."""
    return any(
        record.was_sound(run.process_id)
        and record.is_elsewhere(job_id, run.started_ns, again.started_ns)
        for run, again in itertools.pairwise(runs)
    )


def _miscounted(
    stored: Mapping[JobId, Job], counters: Mapping[str, Mapping[str, int]]
) -> list[str]:
    """The counters that differ from what the jobs of the queue say, each beside all others."""
    found: list[str] = []
    statuses_of: defaultdict[str, list[JobStatus]] = defaultdict(list)
    for job in stored.values():
        statuses_of[job.queue].append(job.status)
    for queue in sorted(counters.keys() | statuses_of.keys()):
        statuses, counts = statuses_of[queue], counters.get(queue, {})
        beside = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        found += [
            f"queue {queue}, {name}: {is_} not {should} ({beside})"
            for name, is_, should in _pairs(statuses, counts)
            if is_ != should
        ]
    return found


def _pairs(
    statuses: Sequence[JobStatus], counts: Mapping[str, int]
) -> Iterator[tuple[str, int, int]]:
    """Return counters of a queue, each with the number that should be there."""
    claimed, ends = counts.get("claimed", 0), sum(counts.get(end, 0) for end in _ENDS)
    yield "enqueued", counts.get("enqueued", 0), len(statuses)
    yield "succeeded", counts.get("succeeded", 0), statuses.count(JobStatus.DONE)
    yield "claimed", claimed, min(max(ends, claimed), ends + counts.get("cancelled", 0))


def _is_rerun(runs: list[Run], job: Job, record: Record) -> bool:
    """Return whether a handler started once the store had taken the job's end."""
    if job.finished_at is None:
        return False
    finished_ms = job.finished_at.timestamp() * 1_000 + _CLOCKS_APART_MS
    return any(
        run.token > job.token or wall_ms(run.started_ns) > finished_ms
        for run in runs
        if run.process_id not in record.frozen
    )


def _is_repeated(runs: list[Run], record: Record) -> bool:
    """Return whether a run ended by itself, and another followed without a known reason."""
    for run, again in itertools.pairwise(runs):
        if run.ended_ns is None or not record.was_sound(run.process_id):
            continue
        # A process that was frozen may start a job of a claim that others have taken over since.
        if again.process_id in record.frozen and again.token < run.token:
            continue
        if record.was_undisturbed(run.started_ns, again.started_ns):
            return True
    return False


def _is_burnt(runs: list[Run], record: Record) -> bool:
    """Return whether a run that a stop cut short counted as an attempt."""
    for run, again in itertools.pairwise(runs):
        stop = record.stops.get(run.process_id)
        if stop is None or run.cut_ns is None or not record.was_sound(run.process_id):
            continue
        # Claims in between, of processes that died before their handlers began, use attempts too.
        if again.attempt - run.attempt <= record.deaths_between(run.cut_ns, again.started_ns):
            continue
        if run.cut_ns > stop.at_ns and record.was_undisturbed(stop.at_ns, again.started_ns):
            return True
    return False
