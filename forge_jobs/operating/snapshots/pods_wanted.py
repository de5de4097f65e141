"""How many pods queues want, from the series of the last minutes."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from forge_jobs.clients.forecasts import MEASURED, arrivals
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.metrics import MINUTE, Histogram
from forge_jobs.model.objectives import Objective
from forge_jobs.model.processes import PodState
from forge_jobs.model.queues import QueueCounts, QueueState
from forge_jobs.model.series import SeriesStep
from forge_jobs.operating.snapshots.fleet import is_live
from forge_jobs.policy.judgement.desired_pods import DesiredPods, desired_pods
from forge_jobs.policy.judgement.load import Load
from forge_jobs.policy.percentiles import add

_ROLLED_UP_WITHIN = MINUTE
"""A minute's counters are in the series so long after the minute's end."""

READ_BACK = MEASURED + _ROLLED_UP_WITHIN + MINUTE
"""How far back the minutes are read that a load rests on."""


def pods_wanted(  # noqa: PLR0917 - the readings it weighs, one parameter each
    queue: QueueState,
    objective: Objective,
    counts: QueueCounts | None,
    steps: Iterable[SeriesStep],
    pods: Iterable[PodState],
    now: datetime,
) -> DesiredPods:
    """Return how many pods the queue wants to keep the objective.

    A pod counts with as many slots as pods of the queue have today on average. Without any pod
    one pod is to have all slots.

    :param counts: of the queue. None where the queue's part of the store is silent
    :param steps: minutes of the queue, at least of :data:`READ_BACK`
    :param pods: all pods
    """
    serving = [
        pod for pod in pods if is_live(pod) and not pod.draining and queue.name in pod.pod.queues
    ]
    granted = sum(pod.slots[queue.name].grant for pod in serving if queue.name in pod.slots)
    each = round(granted / len(serving)) if serving else queue.settings.max_workers
    return desired_pods(
        _load(queue, counts, list(steps), now),
        objective,
        pods=len(serving),
        slots_per_pod=max(each, 1),
    )


def _load(
    queue: QueueState, counts: QueueCounts | None, steps: Sequence[SeriesStep], now: datetime
) -> Load:
    """Return the load: arrivals of whole minutes, the last of which has been rolled up.

    What waits and runs is of this moment: a burst shows there first.
    """
    until = now.replace(second=0, microsecond=0) - _ROLLED_UP_WITHIN
    runs, arrived, peak = Histogram({}), 0, 0
    for step in steps:
        if step.at < until - MEASURED:
            continue
        runs = add(runs, step.processing)
        if step.at < until:
            arrived += arrivals(step.counts)
        if step.depth is not None:
            peak = max(peak, step.depth.due)
    return Load(
        over=MEASURED,
        arrived=arrived,
        runs=runs,
        waiting=counts.due if counts else 0,
        running=counts.by_status.get(JobStatus.IN_PROGRESS, 0) if counts else 0,
        max_workers=queue.settings.max_workers,
        peak=peak,
    )
