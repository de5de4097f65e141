"""Reads a snapshot: at most ten calls of a store, however much there is."""

from collections.abc import Sequence
from datetime import timedelta

from forge_jobs.model.metrics import PodMinute
from forge_jobs.operating.snapshots.errors import errors_seen
from forge_jobs.operating.snapshots.fleet import (
    hears_nothing,
    is_skewed,
    leaderless_since,
    odd_since,
    pods_seen,
    schedules_seen,
)
from forge_jobs.operating.snapshots.jobs import jobs_seen
from forge_jobs.operating.snapshots.queues import queues_seen, with_jobs
from forge_jobs.operating.snapshots.series import read_lately, with_series, with_usual
from forge_jobs.operating.snapshots.store import (
    exhausted_since,
    is_exhausted,
    is_slow,
    store_seen,
    with_pools,
)
from forge_jobs.policy.judgement.growth import rolled_up_to
from forge_jobs.policy.judgement.problems import judging
from forge_jobs.policy.judgement.problems.problem import Problem
from forge_jobs.policy.judgement.problems.snapshot import Snapshot
from forge_jobs.storage.protocols import Storage

EVENTS = 1_000
"""Events of pods, leaders and schedules that are looked at: the newest. Jobs have others."""

_ODD = (hears_nothing, is_skewed, is_exhausted, is_slow)
_HOUR = timedelta(hours=1)


async def problems(storage: Storage) -> tuple[Problem, ...]:
    """Return what is wrong with the installation, the worst first.

    The one list that every surface shows. See :mod:`forge_jobs.policy.judgement.problems`.

    :raises Unavailable: the store is silent, or the part with pods and schedules
    """
    return judging.problems(await read_snapshot(storage))


async def read_snapshot(storage: Storage) -> Snapshot:
    """Read a snapshot. Not one atomic step: what changes meanwhile may be seen in part.

    Queues whose part of the store is silent are left out.

    :raises Unavailable: the store is silent, or the part with pods and schedules
    """
    cron = await storage.cron.look()
    now = cron.now
    pods = await storage.procs.pods()
    config = await storage.config.look()
    counts = await storage.jobs.counts(ended_at_most=1)
    events = await storage.jobs.events(queue="", limit=EVENTS)
    minutes: Sequence[PodMinute] = ()
    if any(odd_since(now, pods, (), is_odd) for is_odd in _ODD):
        minutes = await storage.procs.gauges(now - _HOUR, now + _HOUR)
    polling = odd_since(now, pods, minutes, hears_nothing)
    skewed = odd_since(now, pods, minutes, is_skewed)
    exhausted = exhausted_since(odd_since(now, pods, minutes, is_exhausted), minutes)
    slow = odd_since(now, pods, minutes, is_slow)
    report = await storage.report()
    queues = queues_seen(now, config.queues, counts, pods, events)
    jobs = await jobs_seen(storage, now, counts, pods, config.limits)
    lately = await read_lately(storage, now, config.queues, jobs.runs)
    aims = {state.name: state.settings.aim for state in config.queues}
    return Snapshot(
        now=now,
        queues=tuple(
            with_series(with_jobs(queue, jobs), now, aims.get(queue.name), lately)
            for queue in queues
        ),
        errors=await errors_seen(storage, now),
        crashes=jobs.crashes,
        runs=with_usual(jobs.runs, lately),
        limits=jobs.limits,
        pods=with_pools(pods_seen(now, pods, events, polling, skewed), pods, exhausted),
        leaderless_since=leaderless_since(now, cron.leader, pods),
        schedules=schedules_seen(cron.schedules, events, now),
        store=store_seen(
            now,
            report,
            pods,
            slow,
            name=storage.name,
            rolled_up_to=rolled_up_to(lately.whole),
        ),
    )
