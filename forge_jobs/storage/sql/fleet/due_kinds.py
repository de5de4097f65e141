"""Counts due jobs by kind, by which the coordinator finds kinds that wait for slots."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Text, bindparam, cast, func, literal_column, select, text

from forge_jobs.storage.sql.base.levels import levels_of
from forge_jobs.storage.sql.base.lists import one_of
from forge_jobs.storage.sql.base.tables import READY, jobs, queues
from forge_jobs.storage.sql.base.transaction import Tx

LOOKED_AT = 1000
"""How many due jobs of a priority are looked at, so that a long backlog costs no more."""

_NOW: Any = bindparam("now")
_COMMA: Any = literal_column("','")


def _levels() -> Any:
    """Select due jobs by kind in each priority of each open queue, as the ready index begins."""
    opened = (
        select(queues.c.name)
        .where(
            one_of(queues.c.name, "names"),
            queues.c.paused.is_(False),
            queues.c.cooldown_until.is_(None) | (queues.c.cooldown_until <= _NOW),
        )
        .cte("opened")
    )

    levels = levels_of(opened.c.name)
    return (
        select(levels.c.name, _kinds_of(levels).label("kinds"))
        .where(levels.c.priority.is_not(None))
        .order_by(levels.c.name, levels.c.priority)
    )


def _kinds_of(levels: Any) -> Any:
    """Select the first due jobs of a priority by kind, as one text for all levels together."""
    first = (
        select(jobs.c.kind)
        .where(
            jobs.c.queue == levels.c.name,
            jobs.c.priority == levels.c.priority,
            jobs.c.run_at <= _NOW,
            text(READY),
        )
        .order_by(jobs.c.run_at, jobs.c.id)
        .limit(LOOKED_AT)
        .correlate(levels)
        .subquery("first")
    )
    counted = (
        select((cast(func.count(), Text) + "=" + first.c.kind).label("count_of_kind"))
        .group_by(first.c.kind)
        .subquery("counted")
    )
    # Names hold no comma.
    return select(func.aggregate_strings(counted.c.count_of_kind, _COMMA)).scalar_subquery()


_LEVELS = _levels()


def due_kinds(tx: Tx, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """See ``ProcStore.due_kinds``."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for level in tx.execute(_LEVELS, {"names": list(names), "now": tx.now}):
        for count_of_kind in level.kinds.split(",") if level.kinds else ():
            number, _, kind = count_of_kind.partition("=")
            found[level.name][kind] += int(number)
    return {queue: dict(kinds) for queue, kinds in found.items()}
