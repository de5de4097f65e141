"""Fires due schedules."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from forge_jobs import stop_points
from forge_jobs.clients.schedules import job_of
from forge_jobs.clock import to_us
from forge_jobs.config import RuntimeSettings
from forge_jobs.errors import (
    Conflict,
    InvalidInput,
    Locked,
    StorageError,
    StorageRefused,
    Unavailable,
)
from forge_jobs.handlers.preparing import Judged
from forge_jobs.model.events import EventKind
from forge_jobs.model.ids import occurrence_job_id
from forge_jobs.model.schedules import DueSchedules, Firing, Schedule
from forge_jobs.policy.cron import plan_firing
from forge_jobs.reports import reporter
from forge_jobs.runtime.shared.events import EventBuffer
from forge_jobs.storage.protocols import CronStore

logger = reporter(__name__)

FIRE_BATCH = 100
"""Bounds how many schedules one call fires: a call that a busy store cannot finish within its time
limit would be repeated for ever.
"""

PLANNED_AT_ONCE = 1_000
"""Bounds how many occurrences a call fires or skips, give or take a schedule: catching up, each
schedule may have hundreds, and they are computed on the event loop.
"""

MOST_FAILURES = 200
"""Ends a pass on a store that refuses each schedule."""

MAX_BATCHES = 1_000
"""Ends a pass that would never end because intervals are shorter than the pass."""

SHORTEST_PAUSE = timedelta(milliseconds=5)
"""A timer that ends a moment early must not make the loop spin."""


class FireReport(Struct, frozen=True, kw_only=True):
    """The result of one pass.

    :param fired: jobs handed to the store, including those that an overlap rule dropped there
    :param skipped: occurrences that the catch-up rules dropped
    :param disabled: schedules whose stored expression is wrong
    :param next_in: until the next occurrence, at most the loop's interval
    """

    fired: int
    skipped: int
    disabled: tuple[str, ...]
    next_in: timedelta


class _Planned(Struct, frozen=True):
    """A firing, and the occurrences of its jobs."""

    firing: Firing
    occurrences: tuple[datetime, ...]


class _Pass:
    """Adds up the results of the batches of one pass."""

    def __init__(self, events: EventBuffer | None, judge: Judged | None) -> None:
        self.judge = judge
        self.fired = 0
        self.skipped = 0
        self.disabled: list[str] = []
        self.failures: dict[str, Exception] = {}
        self.unreadable: set[str] = set()
        self._events = events

    @property
    def passed_by(self) -> int:
        """Return how many schedules stay due, whatever this pass does."""
        return len(self.failures) + len(self.unreadable)

    def has_passed_by(self, name: str) -> bool:
        """Return whether this pass leaves the schedule due."""
        return name in self.failures or name in self.unreadable

    def note(self, firing: Firing) -> None:
        """Add a firing that the store applied."""
        self.fired += len(firing.jobs)
        self.skipped += firing.skipped
        if firing.error:
            self.disabled.append(firing.name)
            logger.error(
                "schedule %r is disabled until it is edited: %s",
                firing.name,
                firing.error,
                extra={"schedule": firing.name},
            )
            self._record(EventKind.SCHEDULE_DISABLED, "", "", f"{firing.name}: {firing.error}")
        for job in firing.jobs:
            self._record(EventKind.SCHEDULE_FIRED, job.queue, job.id, firing.name)

    def _record(self, kind: EventKind, queue: str, job_id: str, detail: str) -> None:
        if self._events is not None:
            self._events.record(kind, queue=queue, job_id=job_id, detail=detail)

    def raise_failures(self) -> None:
        """Raise one error that names every schedule that could not be fired."""
        if self.failures:
            texts = [f"{name!r} ({error})" for name, error in sorted(self.failures.items())]
            raise StorageError(
                f"schedules that could not be fired, and will be tried again: {', '.join(texts)}"
            ) from next(iter(self.failures.values()))


async def fire_due_once(
    cron: CronStore,
    settings: RuntimeSettings,
    rng: random.Random,
    *,
    events: EventBuffer | None = None,
    judge: Judged | None = None,
) -> FireReport:
    """Fire all due schedules, each in a step that advances the schedule and enqueues the jobs.

    A job's id derives from schedule and occurrence, and each write holds only for the version that
    was read. However many pods do this, and wherever a pod is killed, each occurrence is fired
    once. A stored expression that is wrong disables its own schedule, with the error.

    :raises StorageError: some schedules could not be fired, after all others were. They stay
        enabled and due, so that the next pass tries them again. With :data:`MOST_FAILURES` of them
        the pass ends before the others
    """
    this_pass = _Pass(events, judge)
    next_in: timedelta | None = SHORTEST_PAUSE
    for _ in range(MAX_BATCHES):
        failed, passed_by = len(this_pass.failures), this_pass.passed_by
        if failed >= MOST_FAILURES:
            break
        # Schedules that failed are due still, and mostly the first: the others are behind them.
        due = await cron.due_schedules(FIRE_BATCH + passed_by)
        if stop_points.ARMED:
            await stop_points.reach("cron:read")
        moved = await _fire(cron, _plan_some(due, rng, this_pass), this_pass)
        # A fired schedule may be due again: a long catch-up, or a very short interval.
        if not moved and this_pass.passed_by == passed_by:
            next_in = due.next_in
            break
    this_pass.raise_failures()
    if next_in is None:
        next_in = settings.cron_interval
    return FireReport(
        fired=this_pass.fired,
        skipped=this_pass.skipped,
        disabled=tuple(this_pass.disabled),
        next_in=min(max(next_in, SHORTEST_PAUSE), settings.cron_interval),
    )


def _plan_some(due: DueSchedules, rng: random.Random, this_pass: _Pass) -> list[_Planned]:
    """Return the writes for the first schedules. The rest stays due."""
    planned: list[_Planned] = []
    occurrences = 0
    for schedule in due.schedules:
        if occurrences >= PLANNED_AT_ONCE:
            break
        if this_pass.has_passed_by(schedule.spec.name):
            continue
        each = _plan(schedule, due.now, rng, this_pass)
        if each is not None:
            planned.append(each)
            occurrences += len(each.occurrences) + each.firing.skipped
    return planned


def _plan(
    schedule: Schedule, now: datetime, rng: random.Random, this_pass: _Pass
) -> _Planned | None:
    """Return the write for a due schedule. None, and a note: no plan is possible."""
    name = schedule.spec.name
    if schedule.unreadable:
        this_pass.unreadable.add(name)  # The store has logged it.
        return None
    try:
        plan = plan_firing(schedule, now, rng)
    except InvalidInput as error:
        disabling = Firing(
            name=name, version=schedule.version, jobs=(), next_at=None, error=str(error)
        )
        return _Planned(disabling, ())
    except Exception as error:  # one schedule's trouble must not keep the others from firing
        logger.exception(
            "schedule %r could not be planned, and is tried again in the next pass; others go on",
            name,
            extra={"schedule": name},
        )
        this_pass.failures[name] = error
        return None
    job = job_of(schedule.spec)
    if this_pass.judge is not None:
        job = this_pass.judge(job)
    jobs = tuple(
        msgspec.structs.replace(
            job,
            id=occurrence_job_id(name, to_us(occurrence)),
            run_at=run_at,
        )
        for occurrence, run_at in zip(plan.occurrences, plan.run_at, strict=True)
    )
    firing = Firing(
        name=name,
        version=schedule.version,
        jobs=jobs,
        next_at=plan.next_at,
        skipped=plan.skipped,
        fired_at=plan.occurrences[-1] if plan.occurrences else None,
    )
    return _Planned(firing, plan.occurrences)


async def _fire(cron: CronStore, planned: Sequence[_Planned], this_pass: _Pass) -> bool:
    """Write the firings. True: a schedule has moved on, by this pod or another."""
    if not planned:
        return False
    try:
        applied = await cron.fire([each.firing for each in planned])
        if stop_points.ARMED:
            await stop_points.reach("cron:committed")
    except StorageError as error:
        if isinstance(error, Unavailable) and not isinstance(error, Locked | StorageRefused):
            raise
        if len(planned) == 1:
            return await _fire_guilty(cron, planned[0], error, this_pass)
        # By halves, so that a schedule that cannot be fired delays no other.
        middle = len(planned) // 2
        halves = (planned[:middle], planned[middle:])
        return any([await _fire(cron, half, this_pass) for half in halves])
    for each, was_applied in zip(planned, applied, strict=True):
        if was_applied:
            this_pass.note(each.firing)
    return True


async def _fire_guilty(
    cron: CronStore, planned: _Planned, error: StorageError, this_pass: _Pass
) -> bool:
    """Deal with a firing that failed alone. True: its schedule has moved on.

    A Conflict means that the id of an occurrence is taken: the occurrence has fired before, with
    what the schedule said then (an edit since, and a clock that stepped back). That will never
    change, so the schedule goes past this occurrence, and loses none of the others.
    """
    name = planned.firing.name
    if not isinstance(error, Conflict) or not planned.occurrences:
        this_pass.failures[name] = error
        return False
    first_only = _cut_to_first(planned)
    if len(planned.occurrences) > 1:
        return await _fire(cron, [first_only], this_pass)
    past = Firing(
        name=name,
        version=planned.firing.version,
        jobs=(),
        next_at=planned.firing.next_at,
        skipped=planned.firing.skipped + 1,
    )
    return await _fire(cron, [_Planned(past, ())], this_pass)


def _cut_to_first(planned: _Planned) -> _Planned:
    firing, occurrences = planned.firing, planned.occurrences
    return _Planned(
        Firing(
            name=firing.name,
            version=firing.version,
            jobs=firing.jobs[:1],
            next_at=occurrences[1] if len(occurrences) > 1 else firing.next_at,
            skipped=firing.skipped,
            fired_at=occurrences[0],
        ),
        occurrences[:1],
    )
