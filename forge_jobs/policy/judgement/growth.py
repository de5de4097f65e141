"""The growth of a backlog, from the depths that a store keeps by minute."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from forge_jobs.model.metrics import MINUTE
from forge_jobs.model.series import SeriesStep
from forge_jobs.policy.judgement.problems.snapshot import Growth

_GAP = timedelta(minutes=3)
"""Depths further apart than this do not follow each other: nothing is known of the time between."""


def growth(minutes: Sequence[SeriesStep], now: datetime) -> Growth | None:
    """Return the growth that lasts, None where the newest depth is not above the one before.

    A minute whose depth equals the one before ends the growth, and so does a gap without a depth.

    :param minutes: of one queue, oldest first. Those without a depth count for nothing
    """
    known = [(each, each.depth) for each in minutes if each.depth is not None]
    if not known or now - known[-1][0].at > _GAP:
        return None
    first = len(known) - 1
    while first > 0 and _grew(known[first - 1][0], known[first][0]):
        first -= 1
    base, newest = known[first][0], known[-1][0]
    if base is newest:
        return None
    over = (newest.at - base.at) / MINUTE
    gained = _due(newest) - _due(base)
    ended = sum(sum(each.processing.counts.values()) for each, _ in known[first + 1 :])
    return Growth(
        since=known[first + 1][0].at,
        a_minute=gained / over,
        # A job that neither ended nor waits would be in no backlog.
        arrivals=(gained + ended) / over,
        ends=ended / over,
    )


def _grew(before: SeriesStep, after: SeriesStep) -> bool:
    return _due(after) > _due(before) and after.at - before.at <= _GAP


def _due(step: SeriesStep) -> int:
    return step.depth.due if step.depth else 0


def rolled_up_to(minutes: Sequence[SeriesStep]) -> datetime | None:
    """Return the begin of the first minute that is behind. None where none is.

    Runs ended in such a minute, and its exact counts are not there yet. Minutes before the newest
    one with counts are never behind: a pod of an earlier release may have rolled them up.

    :param minutes: of the whole store, oldest first
    """
    behind = None
    for each in reversed(minutes):
        if each.counts:
            break
        if each.processing.counts:
            behind = each.at
    return behind
