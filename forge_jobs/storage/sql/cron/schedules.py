"""Schedules: declared, edited, paused, deleted and read."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Row, bindparam, literal, select, true, update

from forge_jobs.clock import from_us, to_us
from forge_jobs.errors import NotFound
from forge_jobs.model.jobs import EnqueueOutcome, NewJob
from forge_jobs.model.schedules import DueSchedules, Schedule, ScheduleSpec
from forge_jobs.storage.salvage import Fields, no_spec, salvaged_schedule, tally, truth
from forge_jobs.storage.sql.base.tables import schedules
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.cron import fire

_spec = msgspec.json.Decoder(ScheduleSpec)
_NOW: Any = bindparam("now", type_=BigInteger)

_ONE = select(schedules).where(schedules.c.name == bindparam("of"))
_ONE_LOCKED = _ONE.with_for_update(key_share=True)
_ALL = select(schedules)
_KNOWN = _ALL.where(schedules.c.deleted.is_(False))
_first = (
    _KNOWN.where(
        schedules.c.next_at.is_not(None), schedules.c.paused.is_(False), schedules.c.error == ""
    )
    .order_by(schedules.c.next_at, schedules.c.name)
    .limit(bindparam("at_most", type_=BigInteger))
    .subquery("first")
)
# One row with the time alone when no schedule is found.
DUE = (
    select(_NOW.label("now"), *_first.c)
    .select_from(select(literal(1)).subquery("moment").outerjoin(_first, true()))
    .order_by(_first.c.next_at, _first.c.name)
)
"""Takes ``at_most`` and ``now``, for :func:`due_of`."""
_WRITE = update(schedules).where(schedules.c.name == bindparam("of"))


def _schedule(row: Any) -> Schedule:
    read = Fields({column.name: getattr(row, column.name) for column in schedules.columns})
    found = Schedule(
        spec=read.read("spec", _spec.decode, None) or no_spec(row.name),
        version=read.number("version"),
        paused=read.read("paused", truth, False),
        edited=read.read("edited", truth, False),
        next_at=read.instant_or_none("next_at"),
        last_fired_at=read.instant_or_none("last_fired_at"),
        fired=read.number("fired"),
        skipped=read.number("skipped"),
        error=read.text("error"),
        deleted=read.read("deleted", truth, False),
    )
    return salvaged_schedule(found, read.problems)


def _at(instant: datetime | None) -> int | None:
    return None if instant is None else to_us(instant)


def _read(tx: Tx, name: str) -> Schedule:
    return _schedule(tx.execute(_ONE, {"of": name}).one())


def _known(tx: Tx, name: str) -> Row[Any]:
    """Lock and return the row.

    :raises NotFound: there is none, or it was deleted
    """
    row = tx.execute(_ONE_LOCKED, {"of": name}).first()
    if row is None or _schedule(row).deleted:
        raise NotFound(f"no schedule is named {name!r}; forge-jobs cron list names all")
    return row


def _write(tx: Tx, row: Row[Any], **values: Any) -> None:
    # Unreadable numbers begin anew with any write.
    for name in ("fired", "skipped", "next_at", "last_fired_at"):
        before = getattr(row, name)
        if name not in values and before is not None and type(before) is not int:
            values[name] = 0 if name in ("fired", "skipped") else None
    version = tally(row.version) + 1
    tx.execute(_WRITE.values(version=version, **values), {"of": row.name})


def _create_or_lock(
    tx: Tx, spec: ScheduleSpec, next_at: datetime | None, *, edited: bool
) -> Row[Any] | None:
    """Return the existing row, locked, or None when this call inserted the row."""
    made = tx.execute(
        tx.flavor.insert_ignore(schedules),
        {
            "name": spec.name,
            "spec": msgspec.json.encode(spec).decode(),
            "next_at": _at(next_at),
            "edited": edited,
        },
    )
    return None if made.rowcount == 1 else tx.execute(_ONE_LOCKED, {"of": spec.name}).one()


def _next_of_edited(row: Row[Any], spec: ScheduleSpec, next_at: datetime | None) -> int | None:
    before = _schedule(row)
    if before.paused:
        return None
    if before.next_at is not None and before.spec.has_times_of(spec):
        return _at(before.next_at)
    return _at(next_at)


def ensure(tx: Tx, spec: ScheduleSpec, next_at: datetime | None) -> Schedule:
    row = _create_or_lock(tx, spec, next_at, edited=False)
    before = None if row is None else _schedule(row)
    if row is None or before is None or before.edited or before.deleted:
        return _read(tx, spec.name)
    if before.unreadable or before.spec != spec:
        _write(
            tx,
            row,
            spec=msgspec.json.encode(spec).decode(),
            next_at=_next_of_edited(row, spec, next_at),
            error="",
        )
    return _read(tx, spec.name)


def put(tx: Tx, spec: ScheduleSpec, next_at: datetime | None) -> Schedule:
    row = _create_or_lock(tx, spec, next_at, edited=True)
    if row is not None:
        _write(
            tx,
            row,
            spec=msgspec.json.encode(spec).decode(),
            next_at=_next_of_edited(row, spec, next_at),
            error="",
            edited=True,
            deleted=False,
        )
    return _read(tx, spec.name)


def pause(tx: Tx, name: str, paused: bool, next_at: datetime | None) -> Schedule:
    row = _known(tx, name)
    _write(tx, row, paused=paused, next_at=None if paused else _at(next_at))
    return _read(tx, name)


def remove(tx: Tx, name: str) -> None:
    row = _known(tx, name)
    # The row stays, so that a deploy does not bring the schedule back. Counts and times are reset.
    _write(
        tx,
        row,
        deleted=True,
        paused=False,
        next_at=None,
        last_fired_at=None,
        fired=0,
        skipped=0,
        error="",
    )


def every(tx: Tx, with_deleted: bool) -> list[Schedule]:
    found = [_schedule(row) for row in tx.execute(_ALL)]
    found = [schedule for schedule in found if with_deleted or not schedule.deleted]
    return sorted(found, key=lambda schedule: schedule.spec.name)


def get(tx: Tx, name: str) -> Schedule | None:
    row = tx.execute(_ONE, {"of": name}).first()
    found = None if row is None else _schedule(row)
    return None if found is None or found.deleted else found


def due(tx: Tx, limit: int) -> DueSchedules:
    return due_of(tx.execute(DUE, {"at_most": limit + 1, "now": tx.now}).all(), limit)


def due_of(rows: Sequence[Any], limit: int) -> DueSchedules:
    """Return the schedules of the rows of :data:`DUE`, which were asked for ``limit`` + 1."""
    now = rows[0].now
    # An unreadable time never comes.
    found = [row for row in rows if row.name is not None and isinstance(row.next_at, int)]
    due = [row for row in found[:limit] if row.next_at <= now]
    later = found[len(due)].next_at if len(found) > len(due) else None
    return DueSchedules(
        now=from_us(now),
        schedules=tuple(_schedule(row) for row in due),
        next_in=None if later is None else timedelta(microseconds=max(0, later - now)),
    )


def trigger(tx: Tx, name: str, job: NewJob) -> EnqueueOutcome:
    row = _known(tx, name)
    [(outcome, is_new)] = fire.put_in(tx, [job])
    _write(
        tx, row, fired=tally(row.fired) + is_new, skipped=tally(row.skipped) + outcome.deduplicated
    )
    return outcome
