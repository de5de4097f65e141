"""How many claims a pod may hold beyond its free workers."""

import math
from datetime import timedelta

MAX_CLAIMS_PER_CALL = 1_000


def ahead_limit(free: int, workers: int, mean_seconds: float | None, horizon: timedelta) -> int:
    """How many claims to hold ahead of ``workers``: what they finish within ``horizon``.

    Zero while the pace is unknown, when jobs take longer than the horizon lasts for all the
    workers together, and when the horizon is zero. With the free workers' own claims it
    stays within what one claim call may ask for.

    :param free: workers without a job, whose claims come first
    :param workers: all workers of the queue on this pod
    :param mean_seconds: measured duration of a run, None when nothing was measured yet
    """
    if mean_seconds is None or math.isnan(mean_seconds) or workers < 1:
        return 0
    room = max(MAX_CLAIMS_PER_CALL - max(free, 0), 0)
    finished = workers * max(horizon.total_seconds(), 0.0)
    # Compared as products, so that a mean of zero divides nothing.
    if finished >= room * mean_seconds:
        return room if finished > 0 else 0
    return int(finished / mean_seconds)
