"""Schedules: declared, edited, paused and deleted by compare-and-set on their version."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from forge_jobs.clock import from_us, to_us
from forge_jobs.errors import NotFound
from forge_jobs.model.schedules import DueSchedules, Schedule, ScheduleSpec
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.salvage import UNREADABLE, Fields, no_spec, salvaged_schedule

_decode_spec = msgspec.json.Decoder(ScheduleSpec).decode


class StoredSchedule(msgspec.Struct, frozen=True, array_like=True):
    """A schedule as scripts know it. See ``schedules.lua``.

    :param next_at: False when unset, and ``last_fired_at`` too
    :param spoilt: fields that do not hold what is written there
    """

    name: str
    spec: str
    version: int
    paused: bool
    edited: bool
    deleted: bool
    next_at: int | bool
    last_fired_at: int | bool
    fired: int
    skipped: int
    error: str
    spoilt: str = ""

    def public(self) -> Schedule:
        """Return the schedule in the form for callers."""
        read = Fields(msgspec.structs.asdict(self))
        found = Schedule(
            spec=self.known_spec or no_spec(self.name),
            version=self.version,
            paused=self.paused,
            edited=self.edited,
            next_at=None if self.next_at is False else read.instant_or_none("next_at"),
            last_fired_at=None
            if self.last_fired_at is False
            else read.instant_or_none("last_fired_at"),
            fired=self.fired,
            skipped=self.skipped,
            error=self.error,
            deleted=self.deleted,
        )
        read.read("spec", _decode_spec, None)
        spoilt = f"{self.spoilt}: not what is written there" if self.spoilt else ""
        return salvaged_schedule(found, read.problems or spoilt)

    @property
    def known_spec(self) -> ScheduleSpec | None:
        """Return what the schedule does, None where that cannot be read."""
        try:
            return _decode_spec(self.spec)
        except UNREADABLE:
            return None


class Due(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``due_schedules``.

    :param later_at: when the next schedule after these is due, False when there is none
    :param has_outbox: fired jobs are still to be brought to their queue
    """

    now: int
    schedules: list[StoredSchedule]
    later_at: int | bool
    has_outbox: bool

    def public(self) -> DueSchedules:
        """Return the answer in the form for callers."""
        later = None if self.later_at is False else max(0, self.later_at - self.now)
        return DueSchedules(
            now=from_us(self.now),
            schedules=tuple(schedule.public() for schedule in self.schedules),
            next_in=None if later is None else timedelta(microseconds=later),
        )


def unset_or_us(instant: datetime | None) -> int | bool:
    """Return an instant in the form for scripts."""
    return False if instant is None else to_us(instant)


async def read(database: Database, names: Sequence[str] = ()) -> dict[str, StoredSchedule]:
    """Return the schedules of these names, deleted ones too. Without names all schedules."""
    found = await database.run_one("schedules", database.keys.fleet, names, list[StoredSchedule])
    return {schedule.name: schedule for schedule in found}


async def read_due(database: Database, limit: int) -> Due:
    """The schedules that are due, earliest first."""
    return await database.run_one("due_schedules", database.keys.fleet, [limit], Due)


async def ensure(database: Database, spec: ScheduleSpec, next_at: datetime | None) -> Schedule:
    """See ``CronStore.ensure_schedule``."""

    def declare(before: StoredSchedule | None) -> StoredSchedule:
        if before is None:
            return _new(spec, next_at, edited=False)
        if before.edited or before.deleted or _is_sound(before, spec):
            return before
        return _with_spec(before, spec, next_at)

    return await _change(database, spec.name, declare)


async def put(database: Database, spec: ScheduleSpec, next_at: datetime | None) -> Schedule:
    """See ``CronStore.put_schedule``."""

    def edit(before: StoredSchedule | None) -> StoredSchedule:
        if before is None:
            return _new(spec, next_at, edited=True)
        changed = _with_spec(before, spec, next_at)
        return msgspec.structs.replace(changed, edited=True, deleted=False)

    return await _change(database, spec.name, edit)


async def pause(database: Database, name: str, paused: bool, next_at: datetime | None) -> Schedule:
    """See ``CronStore.pause_schedule``."""

    def pause_or_resume(before: StoredSchedule | None) -> StoredSchedule:
        at = False if paused else unset_or_us(next_at)
        return msgspec.structs.replace(_known(before, name), paused=paused, next_at=at)

    return await _change(database, name, pause_or_resume)


async def delete(database: Database, name: str) -> None:
    """See ``CronStore.delete_schedule``."""

    def remove(before: StoredSchedule | None) -> StoredSchedule:
        # The record stays, so that a deploy does not bring the schedule back. The history goes.
        return msgspec.structs.replace(
            _known(before, name),
            deleted=True,
            paused=False,
            next_at=False,
            last_fired_at=False,
            fired=0,
            skipped=0,
            error="",
        )

    await _change(database, name, remove)


async def _change(
    database: Database, name: str, decide: Callable[[StoredSchedule | None], StoredSchedule]
) -> Schedule:
    """Write the schedule that ``decide`` makes of the present one. When another caller has written
    in between, decide again. That caller got further, so the repeats end."""
    while True:
        before = (await read(database, [name])).get(name)
        after = decide(before)
        if after is before:
            return after.public()
        if await database.run_one("write_schedule", database.keys.fleet, after, bool):
            return msgspec.structs.replace(after, version=after.version + 1, spoilt="").public()


def _is_sound(before: StoredSchedule, spec: ScheduleSpec) -> bool:
    return not before.spoilt and before.known_spec == spec


def _known(schedule: StoredSchedule | None, name: str) -> StoredSchedule:
    if schedule is None or schedule.deleted:
        raise unknown(name)
    return schedule


def unknown(name: str) -> NotFound:
    """The error that there is no such schedule."""
    return NotFound(f"no schedule is named {name!r}; forge-jobs cron list names all")


def _new(spec: ScheduleSpec, next_at: datetime | None, *, edited: bool) -> StoredSchedule:
    return StoredSchedule(
        name=spec.name,
        spec=msgspec.json.encode(spec).decode(),
        version=0,
        paused=False,
        edited=edited,
        deleted=False,
        next_at=unset_or_us(next_at),
        last_fired_at=False,
        fired=0,
        skipped=0,
        error="",
    )


def _with_spec(
    before: StoredSchedule, spec: ScheduleSpec, next_at: datetime | None
) -> StoredSchedule:
    return msgspec.structs.replace(
        before,
        spec=msgspec.json.encode(spec).decode(),
        next_at=_next_of_edited(before, spec, next_at),
        error="",
    )


def _next_of_edited(
    before: StoredSchedule, spec: ScheduleSpec, next_at: datetime | None
) -> int | bool:
    if before.paused:
        return False
    known = before.known_spec
    if before.next_at is not False and known and known.has_times_of(spec):
        return before.next_at
    return unset_or_us(next_at)
