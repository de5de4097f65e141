"""Pauses a queue after its upstream throttled."""

import msgspec
from sqlalchemy import bindparam, select, update

from forge_jobs.clock import duration_us
from forge_jobs.model.queues import CooldownPolicy
from forge_jobs.model.transitions import Cooldown
from forge_jobs.storage.set_back import TOLERANCE_US
from forge_jobs.storage.sql.tables import queues
from forge_jobs.storage.sql.transaction import Tx

_decode = msgspec.json.Decoder(CooldownPolicy).decode
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
    until = max(row.cooldown_until or 0, tx.now + duration_us(cooldown.length))
    level = cooldown.level
    quiet_until = (row.cooldown_until or 0) + duration_us(_decode(row.cooldown).quiet)
    if tx.now < quiet_until:
        level = max(level, row.cooldown_level)
    tx.execute(_WRITE, {"queue": queue, "until": until, "level": level})


def shorten_cooldowns(tx: Tx) -> None:
    """Let no pause last longer than the longest of its queue: the clock has been set back."""
    for row in tx.execute(_AHEAD, {"at": tx.now + TOLERANCE_US}).all():
        policy = _decode(row.cooldown)
        longest = duration_us(max(policy.base, policy.cap))
        if row.cooldown_until > tx.now + longest + TOLERANCE_US:
            until = tx.now + longest
            tx.execute(_WRITE, {"queue": row.name, "until": until, "level": row.cooldown_level})
