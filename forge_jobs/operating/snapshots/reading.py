"""Reads a snapshot: at most fourteen calls of a store, however much there is."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from msgspec import Struct

from forge_jobs.model.failures import ErrorGroup
from forge_jobs.model.looks import FleetLook, LimitLoad
from forge_jobs.model.metrics import PodMinute
from forge_jobs.model.queues import QueueCounts
from forge_jobs.operating.snapshots.errors import errors_seen, read_groups
from forge_jobs.operating.snapshots.fleet import (
    hears_nothing,
    is_skewed,
    leaderless_since,
    odd_since,
    pods_seen,
    schedules_seen,
)
from forge_jobs.operating.snapshots.jobs import held_keys, jobs_seen
from forge_jobs.operating.snapshots.queues import queues_seen, with_jobs
from forge_jobs.operating.snapshots.series import (
    Lately,
    keys_with_usual,
    read_lately,
    with_series,
    with_usual,
)
from forge_jobs.operating.snapshots.store import (
    exhausted_since,
    is_exhausted,
    is_slow,
    outboxes_seen,
    store_seen,
    with_pools,
)
from forge_jobs.operating.together import together
from forge_jobs.policy.judgement.growth import rolled_up_to
from forge_jobs.policy.judgement.problems import judging
from forge_jobs.policy.judgement.problems.problem import Problem
from forge_jobs.policy.judgement.problems.snapshot import Snapshot
from forge_jobs.storage.protocols import Storage, StoreReport

_ODD = (hears_nothing, is_skewed, is_exhausted, is_slow)
_HOUR = timedelta(hours=1)


class Aside(Struct, frozen=True, kw_only=True):
    """The parts of a snapshot beside pods, queues and jobs, which change slowly.

    :param groups: failures of the last day
    :param minutes: gauges of the last hour. Nothing when all pods are well
    """

    groups: Sequence[ErrorGroup]
    minutes: Sequence[PodMinute]


class Looked(Struct, frozen=True, kw_only=True):
    """A look at a store, with what was read for it.

    :param loads: of limits by key
    :param problems: the worst first
    """

    fleet: FleetLook
    counts: Mapping[str, QueueCounts]
    lately: Lately
    snapshot: Snapshot
    problems: Sequence[Problem]
    loads: Sequence[LimitLoad] = ()


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
    fleet, counts = await together(storage.cron.look(), storage.jobs.counts(ended_at_most=1))
    # Alone, since the report tells of open transactions, and must not tell of those of this look.
    report = await storage.report()
    aside = await read_aside(storage, fleet)
    return (await read_looked(storage, fleet, counts, aside, report)).snapshot


async def read_aside(storage: Storage, fleet: FleetLook) -> Aside:
    """Read what changes slowly, in one call. One more when something is wrong with a pod.

    :raises Unavailable: the store is silent
    """
    minutes: Sequence[PodMinute] = ()
    if any(odd_since(fleet.now, fleet.pods, (), is_odd) for is_odd in _ODD):
        minutes = await storage.procs.gauges(fleet.now - _HOUR, fleet.now + _HOUR)
    return Aside(groups=await read_groups(storage, fleet.now), minutes=minutes)


async def read_looked(
    storage: Storage,
    fleet: FleetLook,
    counts: Mapping[str, QueueCounts],
    aside: Aside,
    report: StoreReport,
) -> Looked:
    """Read the rest of a snapshot, in two calls, and judge. Long runs in queues with limits cost
    up to six calls more.

    :param aside: may be older than the rest, as the report
    :raises Unavailable: the store is silent
    """
    now, pods, events, minutes = fleet.now, fleet.pods, fleet.events, aside.minutes
    polling = odd_since(now, pods, minutes, hears_nothing)
    skewed = odd_since(now, pods, minutes, is_skewed)
    exhausted = exhausted_since(odd_since(now, pods, minutes, is_exhausted), minutes)
    slow = odd_since(now, pods, minutes, is_slow)
    queues = queues_seen(now, fleet.queues, counts, pods, events)
    jobs = await jobs_seen(storage, counts, fleet)
    lately = await read_lately(storage, now, fleet.queues, jobs.runs, jobs.keys)
    runs = with_usual(jobs.runs, lately)
    held = await held_keys(storage, now, fleet.limited, runs)
    aims = {state.name: state.settings.aim for state in fleet.queues}
    snapshot = Snapshot(
        now=now,
        queues=tuple(
            with_series(with_jobs(queue, jobs), now, aims.get(queue.name), lately)
            for queue in queues
        ),
        errors=errors_seen(aside.groups, now),
        crashes=jobs.crashes,
        runs=runs,
        limits=jobs.limits,
        keys=keys_with_usual(jobs.keys, lately),
        held_keys=held,
        struck=jobs.struck,
        pods=with_pools(pods_seen(now, pods, events, polling, skewed), pods, exhausted),
        leaderless_since=leaderless_since(now, fleet.leader, pods),
        schedules=schedules_seen(fleet.schedules, events, now),
        outboxes=outboxes_seen(pods),
        store=store_seen(
            now,
            report,
            pods,
            slow,
            name=storage.name,
            rolled_up_to=rolled_up_to(lately.whole),
        ),
    )
    found = judging.problems(snapshot)
    return Looked(
        fleet=fleet,
        counts=counts,
        lately=lately,
        snapshot=snapshot,
        problems=found,
        loads=jobs.loads,
    )
