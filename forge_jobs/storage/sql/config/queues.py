"""Queues: rows read so that a spoilt one harms no other, cool-downs and deletion."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Row, Select, bindparam, delete, exists, func, select, update

from forge_jobs.clock import duration_us, from_us
from forge_jobs.model.queues import CooldownPolicy, QueueSettings, QueueState, Retention
from forge_jobs.model.retries import Retry
from forge_jobs.model.transitions import Cooldown
from forge_jobs.storage.deleting import MOST_COUNTED, in_use, unknown_queue
from forge_jobs.storage.history.series import FOREVER
from forge_jobs.storage.salvage import (
    UNREADABLE,
    Fields,
    letters_to,
    number_or,
    objective_in,
    rest_of,
    salvaged_queue,
    truth,
)
from forge_jobs.storage.set_back import TOLERANCE_US
from forge_jobs.storage.sql.base.history_tables import series_hours
from forge_jobs.storage.sql.base.tables import jobs, limits, openings, pods, queues, slots
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.base.unreadable import Shapes

_DEFAULTS = QueueSettings()

STATE_COLUMNS: tuple[ColumnElement[Any], ...] = (
    queues.c.name,
    queues.c.max_workers,
    queues.c.cooldown,
    queues.c.retention,
    queues.c.retry,
    queues.c.overridden,
    queues.c.paused,
    queues.c.paused_at,
    queues.c.cooldown_until,
    queues.c.cooldown_level,
    queues.c.dead_letter,
    queues.c.objective,
)
"""Columns that :func:`queue_state` reads."""

_ZERO = timedelta(0)
_values = attrgetter(*(column.name for column in STATE_COLUMNS))
_shapes = Shapes(STATE_COLUMNS)
_cooldown = msgspec.json.Decoder(CooldownPolicy).decode
_retention = msgspec.json.Decoder(Retention).decode
_retry = msgspec.json.Decoder(Retry | None).decode
_names = msgspec.json.Decoder(frozenset[str]).decode
# An operator may have set any of them, and code must not overwrite that setting.
_ALL_SETTINGS = frozenset(QueueSettings.__struct_fields__)


def queue_state(row: Row[Any], now: int) -> QueueState:
    """Return the state in a row of :data:`STATE_COLUMNS` at the store's time ``now``.

    An unreadable setting counts as a queue's default, an unreadable pause as set.
    """
    if _shapes.fits(_values(row)):
        with suppress(*UNREADABLE):
            settings = QueueSettings(
                max_workers=row.max_workers,
                cooldown=_cooldown(row.cooldown),
                retention=_retention(row.retention),
                retry=_retry(row.retry),
                dead_letter=row.dead_letter,
                objective=row.objective,
            )
            return QueueState(
                name=row.name,
                settings=settings,
                overridden=_names(row.overridden),
                paused=bool(row.paused),
                cooldown_level=row.cooldown_level,
                paused_since=None if row.paused_at is None else from_us(row.paused_at),
                **_cooling(row.cooldown_until, now),
            )
    return _salvaged(row, now)


def _cooling(until: int | None, now: int) -> dict[str, Any]:
    if until is None:
        return {"cooldown_remaining": _ZERO, "cooldown_ended_for": None}
    remaining, ended_for = rest_of(until, now)
    return {"cooldown_remaining": remaining, "cooldown_ended_for": ended_for}


def _salvaged(row: Row[Any], now: int) -> QueueState:
    read = Fields({column.name: getattr(row, column.name) for column in STATE_COLUMNS})
    defaults = QueueSettings()
    settings = QueueSettings(
        max_workers=read.read("max_workers", _workers, defaults.max_workers),
        cooldown=read.read("cooldown", _cooldown, defaults.cooldown),
        retention=read.read("retention", _retention, defaults.retention),
        retry=read.read("retry", _retry, None),
        dead_letter=read.read("dead_letter", letters_to, ""),
        objective=read.read("objective", objective_in, ""),
    )
    found = QueueState(
        name=row.name,
        settings=settings,
        overridden=read.read("overridden", _names, _ALL_SETTINGS),
        paused=read.read("paused", truth, True),
        cooldown_level=read.number("cooldown_level"),
        paused_since=read.instant_or_none("paused_at"),
        **_cooling(read.number_or_none("cooldown_until"), now),
    )
    return salvaged_queue(found, read.problems)


def cooldown_of(stored: object) -> CooldownPolicy:
    """Return a stored policy, the default where unreadable."""
    return Fields({"cooldown": stored}).read("cooldown", _cooldown, CooldownPolicy())


def retention_of(stored: object) -> Retention | None:
    """Return a stored retention, None where unreadable."""
    try:
        return _kept(stored)
    except UNREADABLE:
        return None


@lru_cache(256)
def _kept(stored: Any) -> Retention:
    return _retention(stored)


def workers_of(stored: object) -> int:
    """Return a stored maximum of workers, the default where unreadable."""
    return Fields({"max_workers": stored}).read(
        "max_workers", _workers, QueueSettings().max_workers
    )


def _workers(stored: Any) -> int:
    return QueueSettings(max_workers=stored).max_workers


def declare_queues(tx: Tx, names: Iterable[str], settings: QueueSettings = _DEFAULTS) -> None:
    """Create missing queues. Existing ones stay as they are."""
    fields = settings_columns(msgspec.structs.asdict(settings))
    if rows := [{"name": name, **fields} for name in sorted(set(names))]:
        # The version of a queue that was deleted before does not come back, nor does the fleet's
        # sum. In milliseconds, so that the sum over any number of queues is within 64 bits.
        first = tx.now // 1_000
        rows = [{"allocation_version": first, **row} for row in rows]
        tx.execute(tx.flavor.insert_ignore(queues), rows)


def settings_columns(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as they are stored: durations as ISO 8601, exact to the microsecond."""
    return {
        name: value if isinstance(value, int | str) else msgspec.json.encode(value).decode()
        for name, value in fields.items()
    }


_READ = (
    select(queues.c.cooldown, queues.c.cooldown_until, queues.c.cooldown_level)
    .where(queues.c.name == bindparam("queue"))
    .with_for_update(key_share=True)
)
_AHEAD = (
    select(queues.c.name, queues.c.cooldown, queues.c.cooldown_until, queues.c.cooldown_level)
    .where(queues.c.cooldown_until > bindparam("at"))
    .order_by(queues.c.name)
    .with_for_update(key_share=True, skip_locked=True)
)
_WRITE = (
    update(queues)
    .where(queues.c.name == bindparam("queue"))
    .values(cooldown_until=bindparam("until"), cooldown_level=bindparam("level"))
)


def start_cooldown(tx: Tx, queue: str, cooldown: Cooldown) -> None:
    """Keep the later end and the higher level of the stored and the given cool-down.

    A stored level no longer counts once the queue's quiet time has passed.
    """
    row = tx.execute(_READ, {"queue": queue}).first()
    if row is None:
        return
    before = number_or(row.cooldown_until, 0)
    until = max(before, tx.now + duration_us(cooldown.length))
    level = cooldown.level
    quiet_until = before + duration_us(cooldown_of(row.cooldown).quiet)
    if tx.now < quiet_until:
        level = max(level, number_or(row.cooldown_level, 0))
    tx.execute(_WRITE, {"queue": queue, "until": until, "level": level})


def shorten_cooldowns(tx: Tx) -> None:
    """Let no cool-down last longer than the longest of its queue, after the clock has been set
    back."""
    for row in tx.execute(_AHEAD, {"at": tx.now + TOLERANCE_US}).all():
        policy = cooldown_of(row.cooldown)
        longest = duration_us(max(policy.base, policy.cap))
        until = tx.now + longest
        if number_or(row.cooldown_until, 2 * until) > until + TOLERANCE_US:
            tx.execute(_WRITE, {"queue": row.name, "until": until, "level": row.cooldown_level})


_LOCKED = select(queues.c.name).where(queues.c.name == bindparam("of")).with_for_update()
_JOBS = select(func.count()).select_from(
    select(jobs.c.id).where(jobs.c.queue == bindparam("of")).limit(MOST_COUNTED + 1).subquery()
)
_PODS = (
    select(func.count())
    .select_from(slots)
    .where(
        slots.c.queue == bindparam("of"),
        exists().where(
            pods.c.host_id == slots.c.host_id,
            pods.c.epoch == slots.c.epoch,
            pods.c.lease_until > bindparam("now"),
        ),
    )
)
_DELETE_SLOTS = delete(slots).where(slots.c.queue == bindparam("of"))
_DELETE = delete(queues).where(queues.c.name == bindparam("of"))
_DELETE_LIMITS = delete(limits).where(limits.c.queue == bindparam("of"))
_DELETE_OPENINGS = delete(openings).where(openings.c.queue == bindparam("of"))
_DELETE_TOTALS = delete(series_hours).where(
    series_hours.c.queue == bindparam("of"), series_hours.c.at == FOREVER
)


def delete_queue(tx: Tx, name: str) -> None:
    """See ``ConfigStore.delete_queue``."""
    if tx.execute(_LOCKED, {"of": name}).first() is None:
        raise unknown_queue(name)
    found = tx.execute(_JOBS, {"of": name}).scalar_one()
    served = tx.execute(_PODS, {"of": name, "now": tx.now}).scalar_one()
    if found or served:
        raise in_use(name, found, served)
    tx.execute(_DELETE_SLOTS, {"of": name})
    tx.execute(_DELETE_TOTALS, {"of": name})
    tx.execute(_DELETE_LIMITS, {"of": name})
    tx.execute(_DELETE_OPENINGS, {"of": name})
    tx.execute(_DELETE, {"of": name})
    tx.deleted_queues.add(name)
    tx.wake_beats()
    tx.wake_fleet()


def _unlisted() -> Select[str]:
    """Select queues with jobs or pods and without a row: one index step for each queue."""
    first = select(func.min(jobs.c.queue).label("name")).cte("names", recursive=True)
    following = select(func.min(jobs.c.queue)).where(jobs.c.queue > first.c.name).scalar_subquery()
    names = first.union_all(select(following).where(first.c.name.is_not(None)))
    used = select(names.c.name).union(select(slots.c.queue)).subquery("used")
    return (
        select(used.c.name)
        .where(used.c.name.is_not(None), ~exists().where(queues.c.name == used.c.name))
        .order_by(used.c.name)
    )


_UNLISTED = _unlisted()


def unlisted(tx: Tx) -> tuple[str, ...]:
    """Return queues in use that have no row, as after a deletion beside a call under way."""
    return tuple(row.name for row in tx.execute(_UNLISTED))


def list_again(tx: Tx, names: tuple[str, ...]) -> None:
    """Create rows for these queues."""
    declare_queues(tx, names)
    tx.wake_beats()
    tx.wake_fleet()
