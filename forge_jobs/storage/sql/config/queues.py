"""Rows of queues: their settings and state, each read so that a spoilt one harms no other."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Row, bindparam, select, update

from forge_jobs.clock import duration_us, from_us
from forge_jobs.model.queues import CooldownPolicy, QueueSettings, QueueState, Retention
from forge_jobs.model.retries import Retry
from forge_jobs.model.transitions import Cooldown
from forge_jobs.storage.queue_records import salvaged_queue
from forge_jobs.storage.salvage import UNREADABLE, Fields, number_or, truth
from forge_jobs.storage.set_back import TOLERANCE_US
from forge_jobs.storage.sql.base.tables import queues
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
)
"""What :func:`queue_state` reads."""

_ZERO = timedelta(0)
_values = attrgetter(*(column.name for column in STATE_COLUMNS))
_shapes = Shapes(STATE_COLUMNS)
_cooldown = msgspec.json.Decoder(CooldownPolicy).decode
_retention = msgspec.json.Decoder(Retention).decode
_retry = msgspec.json.Decoder(Retry | None).decode
_names = msgspec.json.Decoder(frozenset[str]).decode
# An operator may have set any of them, and code must not overwrite it.
_ALL_SETTINGS = frozenset(QueueSettings.__struct_fields__)


def queue_state(row: Row[Any], now: int) -> QueueState:
    """The state in a row of :data:`STATE_COLUMNS` at the store's time ``now``.

    What cannot be read of it counts as a queue's default, an operator's pause as set.
    """
    if _shapes.fits(_values(row)):
        with suppress(*UNREADABLE):
            settings = QueueSettings(
                max_workers=row.max_workers,
                cooldown=_cooldown(row.cooldown),
                retention=_retention(row.retention),
                retry=_retry(row.retry),
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
    left = until - now
    return {
        "cooldown_remaining": timedelta(microseconds=max(0, left)),
        "cooldown_ended_for": timedelta(microseconds=max(0, -left)),
    }


def _salvaged(row: Row[Any], now: int) -> QueueState:
    read = Fields({column.name: getattr(row, column.name) for column in STATE_COLUMNS})
    defaults = QueueSettings()
    settings = QueueSettings(
        max_workers=read.read("max_workers", _workers, defaults.max_workers),
        cooldown=read.read("cooldown", _cooldown, defaults.cooldown),
        retention=read.read("retention", _retention, defaults.retention),
        retry=read.read("retry", _retry, None),
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
    """A stored policy, the default where it cannot be read."""
    return Fields({"cooldown": stored}).read("cooldown", _cooldown, CooldownPolicy())


def retention_of(stored: object) -> Retention | None:
    """A stored retention, None where it cannot be read."""
    try:
        return _kept(stored)
    except UNREADABLE:
        return None


@lru_cache(256)
def _kept(stored: Any) -> Retention:
    return _retention(stored)


def workers_of(stored: object) -> int:
    """A stored maximum of workers, the default where it cannot be read."""
    return Fields({"max_workers": stored}).read(
        "max_workers", _workers, QueueSettings().max_workers
    )


def _workers(stored: Any) -> int:
    return QueueSettings(max_workers=stored).max_workers


def declare_queues(tx: Tx, names: Iterable[str], settings: QueueSettings = _DEFAULTS) -> None:
    """Create those of the queues that are not there; the others stay as they are."""
    fields = settings_columns(msgspec.structs.asdict(settings))
    if rows := [{"name": name, **fields} for name in sorted(set(names))]:
        # Of a queue that was deleted before, no version comes back, nor does the fleet's sum. In
        # milliseconds, so that the sum over any number of queues is within 64 bits.
        first = tx.now // 1_000
        rows = [{"allocation_version": first, **row} for row in rows]
        tx.execute(tx.flavor.insert_ignore(queues), rows)


def settings_columns(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they are stored: durations as ISO 8601, exact to the microsecond."""
    return {
        name: value if isinstance(value, int) else msgspec.json.encode(value).decode()
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
    """Keep the later end and the higher level of what is there and what is given.

    A level that the queue's quiet time has outlived does not count any more.
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
    """Let no pause last longer than the longest of its queue: the clock has been set back."""
    for row in tx.execute(_AHEAD, {"at": tx.now + TOLERANCE_US}).all():
        policy = cooldown_of(row.cooldown)
        longest = duration_us(max(policy.base, policy.cap))
        until = tx.now + longest
        if number_or(row.cooldown_until, 2 * until) > until + TOLERANCE_US:
            tx.execute(_WRITE, {"queue": row.name, "until": until, "level": row.cooldown_level})
