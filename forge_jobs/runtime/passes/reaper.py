"""Revives the jobs of dead processes, and clears away what those processes left behind."""

import contextlib
from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct

from forge_jobs import stop_points
from forge_jobs.clock import Clock, SystemClock
from forge_jobs.config import RuntimeSettings
from forge_jobs.errors import Unavailable
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.events import EventKind
from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import Claim
from forge_jobs.model.transitions import Revival, StaleClaim
from forge_jobs.policy.liveness import ReaperGuard
from forge_jobs.policy.transitions import grouped, stale_transition
from forge_jobs.reports import reporter
from forge_jobs.runtime.passes.bisecting import BisectingSender
from forge_jobs.runtime.passes.cleanup import BUDGET, BatchReport, in_batches
from forge_jobs.runtime.shared.clean_texts import named
from forge_jobs.runtime.shared.events import EventBuffer
from forge_jobs.runtime.shared.failures import FailureRecorder
from forge_jobs.storage.protocols import JobStore, ProcStore

logger = reporter(__name__)

REAP_BATCH = 500
"""Bounds how long one call holds the store's write lock."""

FREE_BATCH = 1_000
"""Bounds the same for jobs on hold."""

BRING_BACK_BATCH = 2_000
"""Bounds the same for jobs dated ahead: as many as were ever stored at once."""


class ReapReport(Struct, frozen=True, kw_only=True):
    """The result of one pass.

    :param allowed: the guard trusted this pod's own clocks. Otherwise nothing is revived and no pod
        is dropped
    :param revived: claims that were ended. Their jobs wait again, are dead or cancelled
    :param brought_back: jobs that were due before the store's clock was set back, and are due again
    :param came_back: claims that beat, ended or were revived elsewhere after they were read, or
        whose jobs a caller's transaction holds
    :param expired: waiting jobs cancelled because their ``expires_at`` came
    :param is_swept: no waiting job is left whose ``expires_at`` has come
    :param dropped: pods forgotten
    :param next_in: until the next pass
    """

    allowed: bool
    next_in: timedelta
    brought_back: int = 0
    revived: tuple[Claim, ...] = ()
    came_back: int = 0
    expired: int = 0
    is_swept: bool = True
    dropped: tuple[HostId, ...] = ()


async def reap_once(
    jobs: JobStore,
    procs: ProcStore,
    settings: RuntimeSettings,
    guard: ReaperGuard,
    registry: HandlerRegistry | None = None,
    *,
    clock: Clock | None = None,
    events: EventBuffer | None = None,
    sweep: bool = True,
    sender: BisectingSender | None = None,
    failures: FailureRecorder | None = None,
) -> ReapReport:
    """Revive every stale claim, in bounded batches.

    A claim is judged by its own silence, never by its age. Reading and writing are two steps. The
    write checks again, so that of a reaper and a beat, an end, or another reaper one wins.

    :param guard: kept from pass to pass, and asked once the store has answered
    :param registry: knows how many crashes a kind may have, else ``settings.max_crashes``
    :param clock: the guard's
    :param sweep: also expire waiting jobs, free held ones and forget dead pods, which can wait for
        a later pass
    :param sender: kept from pass to pass. Claims that it has set aside delay no others
    :param failures: counts the crashes
    """
    sender = BisectingSender("the revival of job") if sender is None else sender
    clock = clock or SystemClock()
    rest = rest_of(settings)
    # A claim with a beat newer than this cannot go stale before the rest is over.
    asked_at = clock.elapsed()
    silent = await jobs.stale_claims(settings.lease - rest, 1)
    is_quiet = not silent
    allowed = guard.may_revive(clock, asked_at=asked_at, read_at=silent.read_at)
    brought_back = 0
    if guard.must_look:
        # While a part of the store is silent, its jobs stay as they are, for a later pass.
        with contextlib.suppress(Unavailable):
            brought_back = await _bring_back(jobs, procs, clock, guard)
    revived: list[Claim] = []
    left: set[Claim] = set()
    if not is_quiet:
        allowed = await _revive_all(
            jobs,
            settings,
            guard,
            clock,
            registry=registry,
            revived=revived,
            left=left,
            sender=sender,
            failures=failures,
        )
    if sweep:
        await in_batches(procs.free_held_jobs, FREE_BATCH, BUDGET, clock)
    dropped: list[HostId] = []
    if sweep and allowed:
        with contextlib.suppress(Unavailable):
            dropped = await procs.drop_dead_pods(settings.lease, REAP_BATCH)
    _report(revived, dropped, events)
    # Last, and not to the end: claims that go silent meanwhile must not wait for this. No guard is
    # needed: ``expires_at`` is an instant, and nothing is concluded from silence.
    swept = BatchReport(0, finished=True)
    if sweep:
        swept = await in_batches(jobs.expire, REAP_BATCH, settings.reap_interval / 2, clock)
    return ReapReport(
        allowed=allowed,
        next_in=rest if is_quiet and swept.finished else settings.reap_interval,
        brought_back=brought_back,
        revived=tuple(revived),
        came_back=len(left),
        expired=swept.rows,
        is_swept=swept.finished,
        dropped=tuple(dropped),
    )


async def _revive_all(
    jobs: JobStore,
    settings: RuntimeSettings,
    guard: ReaperGuard,
    clock: Clock,
    *,
    registry: HandlerRegistry | None,
    sender: BisectingSender,
    revived: list[Claim],
    left: set[Claim],
    failures: FailureRecorder | None,
) -> bool:
    """Revive batch after batch, and return whether the guard allowed it.

    :param revived: gets the claims that were ended
    :param left: gets the claims that are in use after all
    """
    early: set[Claim] = set()
    while True:
        asked_at = clock.elapsed()
        aside = sender.waiting
        limit = REAP_BATCH + len(left) + len(early) + len(aside)
        stale = await jobs.stale_claims(settings.lease, limit)
        # Asked after the reading: whatever this process slept through before the reading shows now,
        # and so does a step of the store's clock. After the reading, the write looks at the
        # staleness of these claims alone.
        allowed = guard.may_revive(clock, asked_at=asked_at, read_at=stale.read_at)
        # Claims in use stay, and others stand behind them. So do claims of a queue to which no pod
        # could beat until lately, and claims that the store refuses.
        early = {
            each.claim
            for each in stale
            if each.claim.job_id in aside or not guard.may_revive_in(each.claim.queue)
        }
        batch = [each for each in stale if each.claim not in left | early][:REAP_BATCH]
        if not allowed or not batch:
            return allowed
        if stop_points.ARMED:
            await stop_points.reach("reap:read")
        applied = await _revive(jobs, batch, settings, registry, sender=sender, failures=failures)
        if stop_points.ARMED:
            await stop_points.reach("reap:committed")
        revived += applied
        left |= {each.claim for each in batch}.difference(applied)
        if len(stale) < limit:
            return allowed


def rest_of(settings: RuntimeSettings) -> timedelta:
    """Return how long a reaper may rest after a pass that found every claim beating.

    Twice the interval, where the lease leaves room for that: even after the longest gap that a
    guard of this interval passes over, the claims of a living pod are younger than a lease.
    """
    rest = 2 * settings.reap_interval
    has_room = rest + settings.lease / 3 + settings.heartbeat_interval < settings.lease
    return rest if has_room else settings.reap_interval


async def _bring_back(jobs: JobStore, procs: ProcStore, clock: Clock, guard: ReaperGuard) -> int:
    """Mend leases and jobs that are dated ahead because the store's clock has been set back.

    Until the guard has seen a whole lease go by after this, no claim is revived. So all live pods
    have beaten again by then.

    :returns: how many jobs are due again. The next pass goes on where there are too many for one
    """
    found = await procs.bring_back_leases()
    report = BatchReport(0, finished=True)
    if found.is_set_back:
        report = await in_batches(jobs.bring_back_jobs, BRING_BACK_BATCH, BUDGET, clock)
    guard.must_look = not report.finished
    if found.leases or report.rows:
        logger.warning(
            "the clock of the store has been set back: %d leases and beats count from now, and %d "
            "jobs that were due are due again",
            found.leases,
            report.rows,
        )
    return report.rows


async def _revive(
    jobs: JobStore,
    stale: list[StaleClaim],
    settings: RuntimeSettings,
    registry: HandlerRegistry | None,
    *,
    sender: BisectingSender,
    failures: FailureRecorder | None,
) -> list[Claim]:
    """Revive the claims, and return those whose revival was applied."""

    async def revive(revivals: Sequence[Revival]) -> list[Claim]:
        applied = await jobs.revive(revivals, settings.lease)
        pairs = zip(revivals, applied, strict=True)
        return [each.claim for each, was_applied in pairs if was_applied]

    revivals = [
        Revival(
            each.claim,
            grouped(
                stale_transition(each, _max_crashes(each.kind, settings, registry), settings.lease),
                each.kind,
            ),
        )
        for each in stale
    ]
    answers = await sender.send(revivals, revive, lambda each: each.claim.job_id)
    applied = [claim for answer in answers for claim in answer]
    if failures is not None:
        kinds = {each.claim: each.kind for each in stale}
        ended = {each.claim: each.transition for each in revivals}
        for claim in applied:
            failures.record(claim, kinds[claim], ended[claim])
    return applied


def _max_crashes(kind: str, settings: RuntimeSettings, registry: HandlerRegistry | None) -> int:
    handler = None if registry is None else registry.get(kind)
    own = None if handler is None else handler.options.max_crashes
    return settings.max_crashes if own is None else own


def _report(revived: list[Claim], dropped: list[HostId], events: EventBuffer | None) -> None:
    if revived:
        logger.warning(
            "revived %d jobs, whose processes died or lost the store: %s",
            len(revived),
            named([claim.job_id for claim in revived]),
            extra={"job_ids": [claim.job_id for claim in revived[:20]]},
        )
    if events is None:
        return
    for claim in revived:
        events.record(EventKind.REVIVED, queue=claim.queue, job_id=claim.job_id)
    for host_id in dropped:
        events.record(EventKind.POD_LOST, detail=host_id)
