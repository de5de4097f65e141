"""Queues as the Overview and the list of queues show them: a line each, the worst first."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct, structs

from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.metrics import MINUTE, MetricBucket
from forge_jobs.model.processes import PodState
from forge_jobs.model.queues import ENDED_COUNTED, QueueCounts, QueueState
from forge_jobs.operating.access import Actor
from forge_jobs.operating.snapshots.fleet import is_live
from forge_jobs.operating.words import counted
from forge_jobs.policy.percentiles import percentile
from forge_jobs.storage.protocols import Storage
from forge_jobs.web.pages.words import NONE, Curve, length

ENDS = ("succeeded", "failed", "timed_out", "crashed", "rejected", "cancelled")
"""Counters of runs that ended."""

_ORDER = {"bad": 0, "warn": 1, "good": 2, "idle": 3}
_LATELY = timedelta(minutes=15)
_ZERO = timedelta(0)


class Row(Struct, frozen=True, kw_only=True):
    """A queue in a line.

    :param mark: the class of the mark
    :param standing: how the queue stands, in words
    :param dead: how many, in words
    :param arrivals: jobs that came in a minute. None where nothing is known, as ``ends``
    :param total: p95 from due to the end, in seconds
    :param flow: runs that ended, over time
    """

    name: str
    mark: str
    standing: str
    running: int = 0
    granted: int = 0
    most: int = 0
    due: int = 0
    oldest: timedelta | None = None
    retrying: int | None = None
    dead: str = NONE
    arrivals: float | None = None
    ends: float | None = None
    total: float | None = None
    flow: Curve | None = None


async def read_rows(storage: Storage, actor: Actor, now: datetime) -> list[Row]:
    """Read the queues that are open to an actor, the worst first, in four calls."""
    states = [each for each in await storage.config.queues() if actor.sees(each.name)]
    counts = await storage.jobs.counts(ended_at_most=ENDED_COUNTED)
    pods = await storage.procs.pods()
    names = [state.name for state in states]
    lately = await storage.jobs.summaries(names, now - _LATELY, now + MINUTE)
    return rows_of(states, counts, pods, lately)


def rows_of(
    states: Sequence[QueueState],
    counts: Mapping[str, QueueCounts],
    pods: Sequence[PodState],
    lately: Mapping[str, MetricBucket],
) -> list[Row]:
    """Return the queues, the worst first.

    :param lately: sums of the last minutes
    """
    live = [pod for pod in pods if is_live(pod)]
    rows = []
    for state in states:
        found = counts.get(state.name)
        serving = sum(state.name in pod.pod.queues for pod in live)
        row = _row(
            state,
            found,
            serving,
            sum(pod.slots[state.name].grant for pod in live if state.name in pod.slots),
        )
        rows.append(_with_flow(row, lately.get(state.name)))
    return worst_first(rows)


def worst_first(rows: Sequence[Row]) -> list[Row]:
    """Sort by what keeps queues from working, then by how long their oldest job waits."""
    return sorted(
        rows, key=lambda row: (_ORDER[row.mark], -(row.oldest or _ZERO).total_seconds(), row.name)
    )


def _row(state: QueueState, counts: QueueCounts | None, serving: int, granted: int) -> Row:
    waits = counts is not None and bool(counts.due or counts.by_status.get(JobStatus.PENDING))
    mark, standing = _standing(state, is_silent=counts is None, serving=serving, waits=waits)
    by_status = counts.by_status if counts else {}
    return Row(
        name=state.name,
        mark=mark,
        standing=standing,
        running=counts.running if counts else 0,
        granted=granted,
        most=state.settings.max_workers,
        due=counts.due if counts else 0,
        oldest=counts.oldest_due_for if counts else None,
        retrying=by_status.get(JobStatus.FAILED, 0),
        dead=counted([counts] if counts else [], JobStatus.DEAD),
    )


def _standing(state: QueueState, *, is_silent: bool, serving: int, waits: bool) -> tuple[str, str]:
    """Return the mark of a queue, and how the queue stands."""
    if is_silent:
        return "bad", "does not answer"
    if state.unreadable:
        return "bad", "cannot be read"
    if state.paused:
        return "warn", "paused"
    if state.cooldown_remaining > _ZERO:
        return "warn", f"cooling down for {length(state.cooldown_remaining)}"
    if waits and not serving:
        return "bad", "unserved"
    return ("good", "open") if serving else ("idle", "no pod")


def _with_flow(row: Row, span: MetricBucket | None) -> Row:
    if span is None:
        return row
    minutes = span.length / MINUTE
    return structs.replace(
        row,
        arrivals=span.counts.get("enqueued", 0) / minutes,
        ends=sum(span.counts.get(end, 0) for end in ENDS) / minutes,
        total=percentile(span.total, 0.95),
    )
