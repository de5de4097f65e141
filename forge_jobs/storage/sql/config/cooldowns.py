"""Pauses a queue after its upstream throttled."""

from sqlalchemy import bindparam, select, update

from forge_jobs.clock import duration_us
from forge_jobs.model.transitions import Cooldown
from forge_jobs.storage.salvage import number_or
from forge_jobs.storage.set_back import TOLERANCE_US
from forge_jobs.storage.sql.base.tables import queues
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.config.queues import cooldown_of

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
