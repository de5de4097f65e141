"""The figures of a run, each beside the aim."""

import itertools
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from tests.chaos.checker import Verdict
from tests.chaos.limited import passed_in
from tests.chaos.pace import Pace
from tests.chaos.record import Outage, Record, monotonic_ns
from tests.chaos.run import Outcome
from tests.chaos.sequenced import crossed_in
from tests.chaos.shard_times import Loss, losses_of
from tests.support.ledger import Ledger, Run


@dataclass(frozen=True)
class Figure:
    """A line of the table.

    :ivar is_met: None where no aim is set, or nothing was measured
    """

    name: str
    aim: str
    measured: str
    is_met: bool | None


def figures_of(outcome: Outcome, verdict: Verdict, pace: Pace) -> list[Figure]:
    """Return every figure that this run can give."""
    times = _Times(outcome)
    shrunk = pace.shrunk
    return [
        *_counts(outcome, verdict),
        _slowest("Crash to re-run, p99", 20 / shrunk, times.crash_to_rerun(), 0.99),
        _slowest("Crash to re-run, p50", None, times.crash_to_rerun(), 0.5),
        _slowest("Stop to re-run elsewhere, longest", 1.0, times.stop_to_rerun(), 1.0),
        _slowest("SIGTERM to exit, longest", pace.grace + 1, times.stop_to_exit(), 1.0),
        _slowest("SIGTERM to exit beside an outage, longest", None, times.hindered_exits(), 1.0),
        _slowest("Leader crash to the next leader, longest", 15 / shrunk, times.crashed_leads(), 1),
        _slowest("Leader resigns to the next leader, longest", 1.0, times.resigned_leads(), 1.0),
        _slowest("Back to work once the store is back, p99", 3.0, times.back_to_work(), 0.99),
        _slowest("Next start of a job after that, longest", None, times.next_start(), 1),
        _slowest("Unknown outcomes resolved after a fault, longest", 10.0, times.resolved(), 1.0),
        *_shards(outcome),
        *_limits(outcome, verdict),
    ]


def _limits(outcome: Outcome, verdict: Verdict) -> list[Figure]:
    """Return what the recorder and the ledger say of keys, if the jobs had limits."""
    told = outcome.recorded
    if not told.looks:
        return []
    everyone = passed_in(outcome.ledger, outcome.record, but_of=())
    crossings = crossed_in(outcome.ledger, outcome.record, but_of=())
    lined = sum(bool(sending.line) for sending in outcome.record.sendings.values())
    return [
        _none("Claims that passed a limit, or such states", told.passed, told.claims or told.looks),
        _none("Keys with room and work that nothing opens", told.idle, told.looks),
        _none("Keys with too many handlers at once", verdict.crowded, len(outcome.ledger.runs)),
        _none("Results of another claim than the last", verdict.late, len(outcome.stored)),
        Figure("Keys seen full, in so many looks", "", f"{told.full:,} in {told.looks:,}", None),
        Figure("Keys that frozen processes overlapped in", "", str(len(everyone)), None),
        _none("Claims out of sequence, or such states", told.crossed, told.members),
        _none("Jobs that ran out of sequence", verdict.crossed, lined),
        Figure("The same, with frozen processes", "", str(len(crossings)), None),
    ]


def _shards(outcome: Outcome) -> list[Figure]:
    """Return the effects of each kind of loss of a shard on its queues and on the others."""
    losses = losses_of(outcome.record, outcome.ledger)
    return [
        figure
        for name in sorted({loss.name for loss in losses})
        for figure in _of_kind(name, [loss for loss in losses if loss.name == name])
    ]


def _of_kind(name: str, losses: list[Loss]) -> list[Figure]:
    least = min(loss.ratio for loss in losses)
    return [
        *(
            Figure(
                f"{name}: ends of {where} queues, before and in the loss",
                "",
                f"{sum(pair[0] for pair in pairs):,} and {sum(pair[1] for pair in pairs):,}",
                None,
            )
            for where, pairs in (
                ("other", [loss.others for loss in losses]),
                ("its", [loss.own for loss in losses]),
            )
        ),
        Figure(
            f"{name}: the rest's throughput, to that before, least",
            ">= 0.9",
            f"{least:.2f} of {len(losses)}",
            least >= 0.9,
        ),
        *(
            _slowest(
                f"{name}: promotion to the next start, {which} queue",
                2.0,
                [pick(loss.starts) for loss in losses],
                1.0,
            )
            for which, pick in (("first", min), ("last", max))
        ),
    ]


def _counts(outcome: Outcome, verdict: Verdict) -> list[Figure]:
    record, ledger = outcome.record, outcome.ledger
    unknown = {job_id for job_id, sending in record.sendings.items() if not sending.acked_ns}
    unsent = [0, *_unsent_ends(record, ledger)]
    again = sum(ledger.repeated().values())
    return [
        _none("Lost acknowledged jobs", verdict.lost, len(record.sendings) - len(unknown)),
        _none("Unexpected jobs", verdict.unexpected, len(ledger.runs)),
        _none("Overlapping executions", verdict.overlapping, len(ledger.runs)),
        _none("Re-runs of finished work", verdict.rerun, len(ledger.runs)),
        _none("Duplicates without a fault", verdict.repeated, len(ledger.runs)),
        _none("Attempts burnt by a stop", verdict.burnt, len(record.stops)),
        _none("Processes that ended by themselves", verdict.exits, len(ledger.starts)),
        _none("Pods still known after a stop in good order", verdict.left, len(record.stops)),
        _none("Stops cut off before all was stored", _hasty(record), len(record.stops)),
        Figure(
            "Unknown enqueues that turned out stored",
            "",
            f"{len(unknown & set(outcome.stored))} of {len(unknown)}",
            None,
        ),
        Figure("Pods that gave their jobs up", "", f"{len(record.fenced)}", None),
        Figure("Runs beyond the first", "", f"{again} of {len(ledger.runs):,}", None),
        Figure("Ended runs done again, most after one kill -9", "", str(max(unsent)), None),
    ]


def _hasty(record: Record) -> list[int]:
    """Processes that said by their exit code that something was left, the store being there."""
    return [
        stop.process_id
        for stop in record.stops.values()
        if stop.exit_code == 1 and record.was_undisturbed(stop.at_ns, stop.exited_ns or 0)
    ]


def _unsent_ends(record: Record, ledger: Ledger) -> list[int]:
    """Return for each killed process how many of its runs had ended and were done again."""
    last = {job_id: runs[-1].token for job_id, runs in ledger.by_job().items()}
    counts = dict.fromkeys(record.kills, 0)
    for run in ledger.runs:
        if run.process_id in counts and run.ended_ns and run.token < last[run.job_id]:
            counts[run.process_id] += 1
    return list(counts.values())


class _Times:
    """Seconds from one event to another."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._record = outcome.record
        self._ledger = outcome.ledger
        self._by_job = outcome.ledger.by_job()

    def crash_to_rerun(self) -> list[float]:
        """Return the times from the first kill that hit a job to the next run.

        A second kill does not count: that job waits for a lease, so that it cannot go on killing.
        """
        hit: set[str] = set()

        def died(run: Run) -> int | None:
            at_ns = self._record.kills.get(run.process_id) if run.over_ns is None else None
            if at_ns is None or run.job_id in hit:
                return None
            hit.add(run.job_id)
            return at_ns

        return self._to_next_run(died)

    def stop_to_rerun(self) -> list[float]:
        """Return the times from the end of a handler cut by a stop to the next run of the job."""

        def cut(run: Run) -> int | None:
            stop = self._record.stops.get(run.process_id)
            return run.cut_ns if stop and run.cut_ns and run.cut_ns > stop.at_ns else None

        return self._to_next_run(cut)

    def _to_next_run(self, interrupted: Callable[[Run], int | None]) -> list[float]:
        found = []
        for runs in self._by_job.values():
            for run, again in itertools.pairwise(runs):
                at_ns = interrupted(run)
                if at_ns and self._record.was_undisturbed(at_ns, again.started_ns):
                    found.append((again.started_ns - at_ns) / 1e9)
        return found

    def stop_to_exit(self) -> list[float]:
        """Return the times from a SIGTERM to the end of the process, while the store answers."""
        return self._exits(undisturbed=True)

    def hindered_exits(self) -> list[float]:
        """The same where the store was away for a part of that time."""
        return self._exits(undisturbed=False)

    def _exits(self, *, undisturbed: bool) -> list[float]:
        return [
            (exited_ns - stop.at_ns) / 1e9
            for stop in self._record.stops.values()
            if (exited_ns := stop.exited_ns) is not None
            and self._record.was_undisturbed(stop.at_ns, exited_ns) is undisturbed
        ]

    def crashed_leads(self) -> list[float]:
        """Return the times from the kill of a leader to the next leader."""
        return [
            (self._record.succeeded_ns[process] - at_ns) / 1e9
            for process, at_ns in self._record.kills.items()
            if process in self._record.succeeded_ns
        ]

    def resigned_leads(self) -> list[float]:
        """Return the times from the end of a stopped leader's last handler to the next leader."""
        last: dict[int, int] = {}
        for run in self._ledger.runs:
            last[run.process_id] = max(last.get(run.process_id, 0), run.over_ns or 0)
        resigned = {
            stop.process_id: max(last.get(stop.process_id, 0), stop.at_ns)
            for stop in self._record.stops.values()
        }
        return [
            max(0.0, (self._record.succeeded_ns[process] - at_ns) / 1e9)
            for process, at_ns in resigned.items()
            if process in self._record.succeeded_ns
        ]

    def back_to_work(self) -> list[float]:
        """Per outage and pod, from when the store takes connections to the pod's next run."""
        return [
            (started - outage.to_ns) / 1e9
            for outage in self._refusals()
            for started in self._first_starts(outage)
        ]

    def next_start(self) -> list[float]:
        """The same per outage alone: the first pod counts."""
        return [
            (min(starts) - outage.to_ns) / 1e9
            for outage in self._refusals()
            if (starts := self._first_starts(outage))
        ]

    def _refusals(self) -> list[Outage]:
        return [outage for outage in self._record.outages if outage.refused]

    def _first_starts(self, outage: Outage) -> Collection[int]:
        first: dict[int, int] = {}
        for run in self._ledger.runs:
            if run.started_ns > outage.to_ns and run.process_id in outage.pods:
                first.setdefault(run.process_id, run.started_ns)
        return first.values()

    def resolved(self) -> list[float]:
        """Return the times from the end of each fault to the last success of the running jobs.

        Time in which a further outage kept the store away does not count.
        """
        return [
            max((self._served_between(outage.to_ns, end) for end in ends), default=0.0)
            for outage, ends in self._ends_after_each()
        ]

    def _ends_after_each(self) -> Iterator[tuple[Outage, list[int]]]:
        """Return when the jobs that each outage has caught were done after it."""
        stored = self._outcome.stored
        for outage in self._record.outages:
            jobs = (stored.get(JobId(job_id)) for job_id in self._caught_in(outage))
            yield (
                outage,
                [
                    at
                    for job in jobs
                    if job is not None and job.status is JobStatus.DONE and job.finished_at
                    if (at := monotonic_ns(job.finished_at)) > outage.to_ns
                ],
            )

    def _served_between(self, from_ns: int, to_ns: int) -> float:
        """Return the seconds between the two in which the store was there."""
        away = sum(
            max(0, min(outage.to_ns, to_ns) - max(outage.from_ns, from_ns))
            for outage in self._record.outages
        )
        return (to_ns - from_ns - away) / 1e9

    def _caught_in(self, outage: Outage) -> set[str]:
        """Jobs of which a run ended during the outage: their ends were under way."""
        return {
            run.job_id
            for run in self._ledger.runs
            if run.ended_ns and outage.from_ns <= run.ended_ns <= outage.to_ns
        }


def _none(name: str, found: list[str] | list[int], of: int) -> Figure:
    return Figure(name, "0", f"{len(found)} of {of:,}", not found)


def _slowest(name: str, aim: float | None, seconds: list[float], quantile: float) -> Figure:
    text = f"<= {aim:g} s" if aim is not None else ""
    if not seconds:
        return Figure(name, text, "not measured", None)
    ordered = sorted(seconds)
    value = ordered[min(len(ordered) - 1, int(quantile * len(ordered)))]
    met = None if aim is None else value <= aim
    return Figure(name, text, f"{value:.2f} s of {len(seconds)}", met)
