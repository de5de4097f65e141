"""Puts jobs of kinds that no live pod knows on hold, so that claims do not meet them again."""

from typing import Any, NamedTuple

import msgspec
from sqlalchemy import BindParameter, bindparam, or_, select, text, update

from forge_jobs.model.jobs import Hold
from forge_jobs.storage.salvage import UNREADABLE
from forge_jobs.storage.sql.base.levels import kinds_of
from forge_jobs.storage.sql.base.lists import one_of
from forge_jobs.storage.sql.base.tables import READY, jobs, pods
from forge_jobs.storage.sql.base.transaction import KINDS, HotStatement, Tx

HOLD_BATCH = 1000
"""How many jobs of unknown kinds one claim puts on hold, so that the claim stays short."""

_BELOW_ALL = -(2**31)

_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode
_queue: BindParameter[str] = bindparam("queue")
_kind: BindParameter[str] = bindparam("kind")
_level: BindParameter[int] = bindparam("level")
_now: BindParameter[int] = bindparam("now")

# Pods of one release publish one text.
_LIVE_KINDS = select(pods.c.kinds).where(pods.c.lease_until > _now).distinct()
_KINDS_IN_USE = HotStatement(kinds_of(_queue))
_LEVEL_OF_KIND = (
    select(jobs.c.priority)
    .where(jobs.c.queue == _queue, jobs.c.kind == _kind, jobs.c.priority > _level, text(READY))
    .order_by(jobs.c.priority)
    .limit(1)
)
_UNKNOWN = (
    select(jobs.c.id)
    .where(
        jobs.c.queue == _queue,
        jobs.c.kind == _kind,
        jobs.c.priority == _level,
        jobs.c.run_at <= _now,
        text(READY),
        or_(jobs.c.expires_at.is_(None), jobs.c.expires_at > _now),
    )
    .order_by(jobs.c.run_at, jobs.c.id)
    .limit(bindparam("count"))
    .with_for_update(skip_locked=True)
)
_PUT_ON_HOLD = update(jobs).where(one_of(jobs.c.id, "ids")).values(hold=Hold.UNKNOWN_KIND.value)


class Kinds(NamedTuple):
    """The kinds of the jobs of a queue that are ready.

    :ivar mine: kinds that the claim may take
    :ivar elsewhere: other kinds that some live pod knows
    """

    mine: frozenset[str]
    elsewhere: frozenset[str]


def hold_unknown_kinds(tx: Tx, queue: str, known: frozenset[str]) -> Kinds:
    """Put due jobs on hold whose kind neither the claim nor any live pod knows."""
    in_use = frozenset(row.kind for row in tx.rows(_KINDS_IN_USE, {"queue": queue})) - {None}
    unknown = in_use - known
    published: frozenset[str] = frozenset()
    if unknown:
        # A pod that registers meanwhile waits, and afterwards frees the jobs held here.
        tx.flavor.lock(tx.connection, KINDS, shared=True)
        texts = tx.execute(_LIVE_KINDS, {"now": tx.now}).scalars().all()
        try:
            published = frozenset(name for text in texts for name in _decode_names(text))
        except UNREADABLE:
            # A pod whose record is spoilt may know any kind.
            published = unknown
    left = HOLD_BATCH
    for kind in sorted(unknown - published):
        left -= _hold(tx, queue, kind, left)
    return Kinds(in_use & known, unknown & published)


def _hold(tx: Tx, queue: str, kind: str, most: int) -> int:
    """Put up to ``most`` due jobs of a kind on hold, and return how many."""
    held = 0
    at: dict[str, Any] = {"queue": queue, "kind": kind, "level": _BELOW_ALL}
    while held < most:
        at["level"] = tx.execute(_LEVEL_OF_KIND, at).scalar()
        if at["level"] is None:
            break
        due = tx.execute(_UNKNOWN, {**at, "now": tx.now, "count": most - held})
        ids = due.scalars().all()
        tx.execute(_PUT_ON_HOLD, {"ids": ids})
        held += len(ids)
    return held
