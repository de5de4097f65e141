"""The leader lease and schedules."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from forge_jobs.errors import NotFound
from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import EnqueueOutcome, NewJob
from forge_jobs.model.processes import Leadership
from forge_jobs.model.schedules import DueSchedules, Firing, Schedule, ScheduleSpec
from tests.conformance.model.reference.enqueue import enqueue
from tests.conformance.model.reference.state import ZERO, ModelLeader, ModelSchedule, World


class ReferenceCron:
    """``CronStore``."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> datetime:
        return self._world.now

    # -- the leader

    def lead(self, host_id: HostId, lease_for: timedelta) -> Leadership:
        now, leader = self._world.now, self._world.leader
        if leader is None:
            leader = self._world.leader = ModelLeader(host_id, 1, now + lease_for)
        elif leader.until <= now:
            leader.host_id, leader.until = host_id, now + lease_for
            leader.term += 1
        elif leader.host_id == host_id:
            leader.until = now + lease_for
        return self._leadership(leader)

    def resign(self, host_id: HostId, term: int) -> None:
        leader = self._world.leader
        if leader and (leader.host_id, leader.term) == (host_id, term):
            leader.until = min(leader.until, self._world.now)

    def leader(self) -> Leadership | None:
        return self._leadership(self._world.leader) if self._world.leader else None

    def _leadership(self, leader: ModelLeader) -> Leadership:
        left = leader.until - self._world.now
        return Leadership(
            host_id=leader.host_id,
            term=leader.term,
            remaining=max(ZERO, left),
            ended_for=max(ZERO, -left),
            fleet_version="",
        )

    # -- schedules

    def ensure_schedule(self, spec: ScheduleSpec, next_at: datetime | None) -> Schedule:
        known = self._world.schedules.get(spec.name)
        if known is None:
            known = self._create(spec, next_at, edited=False)
        elif not (known.edited or known.deleted or known.spec == spec):
            self._write(known)
            known.next_at = _next_of_edited(known, spec, next_at)
            known.spec, known.error = spec, ""
        return _view(known)

    def put_schedule(self, spec: ScheduleSpec, next_at: datetime | None) -> Schedule:
        known = self._world.schedules.get(spec.name)
        if known is None:
            known = self._create(spec, next_at, edited=True)
        else:
            self._write(known)
            known.next_at = _next_of_edited(known, spec, next_at)
            known.spec, known.error, known.edited, known.deleted = spec, "", True, False
        return _view(known)

    def _create(
        self, spec: ScheduleSpec, next_at: datetime | None, *, edited: bool
    ) -> ModelSchedule:
        made = self._world.schedules[spec.name] = ModelSchedule(spec, next_at, edited)
        self._write(made)
        return made

    def _write(self, schedule: ModelSchedule) -> None:
        schedule.version = self._world.new_number()

    def _known(self, name: str) -> ModelSchedule:
        known = self._world.schedules.get(name)
        if known is None or known.deleted:
            raise NotFound(f"there is no schedule {name!r}")
        return known

    def pause_schedule(self, name: str, paused: bool, next_at: datetime | None) -> Schedule:
        known = self._known(name)
        self._write(known)
        known.paused, known.next_at = paused, None if paused else next_at
        return _view(known)

    def delete_schedule(self, name: str) -> None:
        known = self._known(name)
        self._write(known)
        known.deleted, known.paused, known.error = True, False, ""
        known.next_at = known.last_fired_at = None
        known.fired = known.skipped = 0

    def schedules(self, *, with_deleted: bool = False) -> list[Schedule]:
        known = sorted(self._world.schedules.items())
        return [_view(each) for _, each in known if with_deleted or not each.deleted]

    def get_schedule(self, name: str) -> Schedule | None:
        known = self._world.schedules.get(name)
        return None if known is None or known.deleted else _view(known)

    def due_schedules(self, limit: int) -> DueSchedules:
        now = self._world.now
        running = [
            (each.next_at, each.spec.name, each)
            for each in self._world.schedules.values()
            if each.next_at and not (each.deleted or each.paused or each.error)
        ]
        running.sort(key=lambda entry: entry[:2])
        due = [each for at, _, each in running if at <= now][:limit]
        later = running[len(due)][0] if len(running) > len(due) else None
        return DueSchedules(
            now, tuple(map(_view, due)), None if later is None else max(ZERO, later - now)
        )

    def fire(self, firings: Sequence[Firing]) -> list[bool]:
        held: dict[str, Firing] = {}
        for firing in firings:
            known = self._world.schedules.get(firing.name)
            if known and not known.deleted and known.version == firing.version:
                held.setdefault(firing.name, firing)
        # All at once: a job that is refused keeps all the schedules where they are.
        stored = iter(self._put_in([job for firing in held.values() for job in firing.jobs]))
        for firing in held.values():
            self._advance(firing, [next(stored) for _ in firing.jobs])
        return [held.get(firing.name) is firing for firing in firings]

    def _advance(self, firing: Firing, stored: Sequence[tuple[EnqueueOutcome, bool]]) -> None:
        known = self._world.schedules[firing.name]
        self._write(known)
        self._count(known, stored)
        known.skipped += firing.skipped
        known.error = firing.error
        known.next_at = None if firing.error else firing.next_at
        if any(is_new for _, is_new in stored):
            known.last_fired_at = firing.fired_at

    def _put_in(self, jobs: Sequence[NewJob]) -> list[tuple[EnqueueOutcome, bool]]:
        """Return the outcome of each job, and whether the job is new."""
        before = set(self._world.jobs)
        outcomes = enqueue(self._world, jobs)
        return [
            (outcome, not outcome.deduplicated and job.id not in before)
            for job, outcome in zip(jobs, outcomes, strict=True)
        ]

    def _count(self, known: ModelSchedule, stored: Sequence[tuple[EnqueueOutcome, bool]]) -> None:
        known.fired += sum(is_new for _, is_new in stored)
        known.skipped += sum(outcome.deduplicated for outcome, _ in stored)

    def trigger(self, name: str, job: NewJob) -> EnqueueOutcome:
        known = self._known(name)
        self._write(known)
        [(outcome, is_new)] = self._put_in([job])
        self._count(known, [(outcome, is_new)])
        return outcome


def _next_of_edited(
    known: ModelSchedule, spec: ScheduleSpec, next_at: datetime | None
) -> datetime | None:
    """Return the next time: a missed occurrence stays, unless the times are others now."""
    if known.paused:
        return None
    if known.next_at is not None and known.spec.has_times_of(spec):
        return known.next_at
    return next_at


def _view(schedule: ModelSchedule) -> Schedule:
    return Schedule(
        spec=schedule.spec,
        version=schedule.version,
        paused=schedule.paused,
        edited=schedule.edited,
        next_at=schedule.next_at,
        last_fired_at=schedule.last_fired_at,
        fired=schedule.fired,
        skipped=schedule.skipped,
        error=schedule.error,
        deleted=schedule.deleted,
    )
