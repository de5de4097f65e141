"""How many pods a queue wants, for an autoscaler."""

import math
from datetime import timedelta

from msgspec import Struct

from forge_jobs.errors import InvalidInput
from forge_jobs.model.objectives import Objective
from forge_jobs.policy.explanations import count
from forge_jobs.policy.judgement.load import Load
from forge_jobs.policy.judgement.waiting import growing_crews
from forge_jobs.policy.percentiles import Moments

_BUSIEST = 0.85
"""The part of the workers that a steady load may keep busy, whatever the objective allows."""

_SLACK = 1.25
"""Pods stay while so many times the arrivals would still want them."""

_ERRORS = 3.0


class DesiredPods(Struct, frozen=True, kw_only=True):
    """How many pods a queue wants.

    :param pods: never more than what ``max_workers`` can use
    :param workers: how many handlers at once the load and the objective want
    :param bound: what keeps the answer from all that is wanted: ``max_workers``, ``highest`` or ""
    :param text: one sentence for people
    """

    pods: int
    workers: int
    bound: str
    text: str


def desired_pods(
    load: Load,
    objective: Objective,
    *,
    pods: int,
    slots_per_pod: int,
    lowest: int = 1,
    highest: int | None = None,
    starts_in: timedelta = timedelta(seconds=30),
) -> DesiredPods:
    """Say how many pods a queue wants now.

    Wanted are as many workers as let the share of jobs start in time at the measured load, by
    M/G/c, at most 85 % busy. They must also be enough to start, beside what arrives, what waits:
    within half the time of the objective, and no sooner than a new pod can help. More pods are
    wanted at once. Fewer are wanted only when 1.25 times the load, or what the measurement leaves
    open, would not need them either, nor the most that waited in the time that was measured. The
    first is a dead band, as control theory has against chatter, the second the stabilization
    window of Kubernetes' HorizontalPodAutoscaler.

    :param pods: how many there are, or were asked for
    :param slots_per_pod: of this queue
    :param lowest: never fewer. 0 lets a queue without work have none
    :param highest: never more. None: as many as ``max_workers`` can use
    :param starts_in: from the wish for a pod to its first job
    :raises InvalidInput: a number out of range
    """
    if slots_per_pod < 1 or pods < 0 or lowest < 0 or (highest is not None and highest < lowest):
        raise InvalidInput(
            "pods",
            f"are {pods}, of {slots_per_pod} slots, from {lowest} to {highest}",
            "give slots from 1, pods from 0, and highest not below lowest",
        )
    runs = load.moments
    if runs is None:
        least = most = _without_runs(load, pods, slots_per_pod)
    else:
        horizon = max(objective.within / 2, starts_in).total_seconds()
        slack = max(_SLACK, 1 + _ERRORS * load.error_of_use(runs))
        peak = max(load.waiting, load.peak)
        least, most = (
            max(
                _steady(rate, runs, objective, load.max_workers),
                math.floor((rate + waiting / horizon) * runs.mean),
            )
            for rate, waiting in ((load.rate, load.waiting), (load.rate * slack, peak))
        )
    if least == 0 and load.waiting + load.running:
        least = most = max(least, 1)
    few, many = (math.ceil(each / slots_per_pod) for each in (least, max(least, most)))
    wanted = min(max(pods, few), many)
    usable = math.ceil(load.max_workers / slots_per_pod)
    bound = ""
    if wanted > usable:
        wanted, bound = usable, "max_workers"
    if highest is not None and wanted > highest:
        wanted, bound = highest, "highest"
    wanted = max(wanted, min(lowest, usable))
    held = f", held back by {bound}" if bound else ""
    text = (
        f"{count(wanted, 'pod')} for {count(least, 'worker')}{held}: {objective}, "
        f"{count(load.waiting, 'job')} due. Rests on {load.rests_on()}"
    )
    return DesiredPods(pods=wanted, workers=least, bound=bound, text=text)


def _steady(rate: float, runs: Moments, objective: Objective, most: int) -> int:
    """The fewest workers that keep the objective at a steady load. No more than one above most."""
    if rate <= 0:
        return 0
    least = rate * runs.mean / _BUSIEST
    if least > most:
        return most + 1
    within = objective.within.total_seconds()
    for workers, wait in growing_crews(rate, runs):
        is_enough = workers >= least and wait.share_within(within) >= objective.share
        if is_enough or workers > most:
            return workers
    raise AssertionError("crews grow without end")


def _without_runs(load: Load, pods: int, slots_per_pod: int) -> int:
    """Without a length of runs the pods stay, and there is one where there is work."""
    work = max(load.waiting, load.peak) + load.running + load.arrived
    return max(pods * slots_per_pod, 1) if work else 0
