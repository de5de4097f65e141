"""Queues as the Overview and the list of queues show them: a line each, the worst first."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from msgspec import Struct, structs

from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.metrics import HOUR, MINUTE
from forge_jobs.model.processes import PodState
from forge_jobs.model.queues import QueueCounts, QueueState
from forge_jobs.model.series import SeriesStep
from forge_jobs.operating.access import Actor
from forge_jobs.operating.snapshots.fleet import is_live
from forge_jobs.operating.snapshots.objectives import ObjectiveView
from forge_jobs.operating.snapshots.shared import Reader
from forge_jobs.operating.words import counted
from forge_jobs.policy.percentiles import percentile
from forge_jobs.web.pages.charts.figures import a_minute, total
from forge_jobs.web.pages.charts.paths import Curve, curve
from forge_jobs.web.pages.words import NONE, length

ENDS = ("succeeded", "failed", "timed_out", "crashed", "rejected", "cancelled")
"""Counters of runs that ended."""

_ORDER = {"bad": 0, "warn": 1, "good": 2, "idle": 3}
_ZERO = timedelta(0)


class Row(Struct, frozen=True, kw_only=True):
    """A queue in a line.

    :param mark: the class of the mark
    :param standing: how the queue stands, in words
    :param is_known: False: no numbers of the queue are known
    :param dead: how many, in words
    :param arrivals: jobs that came in a minute. None where nothing is known, as ``ends``
    :param delay: p95 from due to start, in seconds
    :param flow: runs that ended, over time
    :param met: share of the jobs of 30 days that started in time. None without an objective
    :param budget: what is left of the budget of the objective, 1 for all
    :param objective: in words, "" without one
    """

    name: str
    mark: str
    standing: str
    is_known: bool = True
    running: int = 0
    granted: int = 0
    most: int = 0
    due: int = 0
    oldest: timedelta | None = None
    retrying: int | None = None
    dead: str = NONE
    arrivals: float | None = None
    ends: float | None = None
    delay: float | None = None
    flow: Curve | None = None
    met: float | None = None
    budget: float = 1.0
    objective: str = ""


async def read_rows(reader: Reader, actor: Actor) -> list[Row]:
    """Read the queues that are open to an actor, the worst first."""
    looked = await reader.looked()
    states = [each for each in looked.fleet.queues if actor.sees(each.name)]
    since = looked.fleet.now - HOUR
    lately = {
        name: [step for step in steps if step.at >= since]
        for name, steps in looked.lately.minutes.items()
    }
    return rows_of(states, looked.counts, looked.fleet.pods, lately)


def rows_of(
    states: Sequence[QueueState],
    counts: Mapping[str, QueueCounts],
    pods: Sequence[PodState],
    lately: Mapping[str, Sequence[SeriesStep]],
) -> list[Row]:
    """Return the queues, the worst first.

    :param lately: minutes of the last hour
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
        rows.append(with_flow(row, lately.get(state.name, ())))
    return worst_first(rows)


def with_objectives(rows: Sequence[Row], stands: Mapping[str, ObjectiveView]) -> list[Row]:
    """Return the lines with how their queues stand to their objectives."""
    return [
        structs.replace(row, met=each.met_30d, budget=each.budget_left, objective=each.objective)
        if (each := stands.get(row.name))
        else row
        for row in rows
    ]


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


def with_flow(row: Row, minutes: Sequence[SeriesStep]) -> Row:
    """Return a line with what flowed in some minutes."""
    if not minutes:
        return row
    ended = {step.at: sum(step.counts.get(end, 0) for end in ENDS) for step in minutes}
    first, last = minutes[0].at, minutes[-1].at
    count = int((last - first) / MINUTE) + 1
    return structs.replace(
        row,
        arrivals=a_minute(minutes, ("enqueued",)),
        ends=a_minute(minutes, ENDS),
        delay=percentile(total(minutes, lambda step: step.delay), 0.95),
        flow=curve(ended.get(first + at * MINUTE, 0) for at in range(count)),
    )
