"""Pauses of a queue after the upstream throttled."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from forge_jobs.model.jobs import Cause
from forge_jobs.model.queues import CooldownPolicy, QueueState
from forge_jobs.model.series import SeriesStep
from forge_jobs.model.transitions import Cooldown

SHORTEST_COOLDOWN = timedelta(seconds=1)
"""An upstream that asks for less is asked again at once by every worker."""

_MAX_LEVEL = 1_000_000


def next_cooldown(
    policy: CooldownPolicy,
    level: int,
    ended_for: timedelta | None,
    retry_after: timedelta | None,
) -> Cooldown:
    """The pause that follows one throttled run.

    The level falls back to zero once ``policy.quiet`` has passed since the end of the last
    pause, then grows by one. ``retry_after`` replaces the computed length, within
    [1 s, ``policy.cap``]. The level grows all the same.

    :param level: of the queue as known when the throttled run started, so that runs which are
        throttled together raise the level once. Zero when there was no pause
    :param ended_for: how long ago the last pause ended, zero while the pause lasts, None when there
        was none
    """
    if ended_for is None or ended_for >= policy.quiet:
        level = 0
    level = min(max(level, 0) + 1, _MAX_LEVEL)
    if retry_after is not None:
        return Cooldown(min(max(retry_after, SHORTEST_COOLDOWN), policy.cap), level)
    if policy.mode == "flat":
        return Cooldown(policy.base, level)
    return Cooldown(_doubled(policy, level - 1), level)


def cooldown_began(queue: QueueState, now: datetime) -> datetime | None:
    """Return the begin of the cool-down that lasts, which follows from its length and the level.

    Where the upstream gave the length, the begin is not known, and now at the latest. See
    :func:`begun_by_counts`. None without a cool-down.
    """
    if queue.cooldown_remaining <= timedelta(0):
        return None
    # As long as the pause that raised the level to what the level is.
    level = queue.cooldown_level - 1
    length = next_cooldown(queue.settings.cooldown, level, timedelta(0), None).length
    return min(now, now + queue.cooldown_remaining - length)


def begun_by_counts(began: datetime, minutes: Sequence[SeriesStep]) -> datetime:
    """Return the begin of a cool-down that lasts, at most a minute late.

    Nothing is claimed during a cool-down. So behind the newest minute in which a run was throttled
    the cool-down had begun, unless jobs were claimed in a later one: then another run has begun
    the cool-down, whose minute is yet to be rolled up.

    :param began: as :func:`cooldown_began` says
    :param minutes: the exact counters of the queue, oldest first
    """
    for each in reversed(minutes):
        if each.counts.get(Cause.THROTTLED):
            return min(began, each.at + each.length)
        if each.counts.get("claimed"):
            break
    return began


def _doubled(policy: CooldownPolicy, times: int) -> timedelta:
    length = policy.base
    # A pause of zero never reaches the cap, and 64 doublings of anything else do.
    for _ in range(min(times, 64)):
        if length >= policy.cap:
            break
        length *= 2
    return min(length, policy.cap)
