"""Due jobs by kind: where a coordinator finds out that a kind waits for slots."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import bindparam, func, select, text

from forge_jobs.storage.sql.lists import one_of
from forge_jobs.storage.sql.tables import READY, jobs, queues
from forge_jobs.storage.sql.transaction import Tx

LOOKED_AT = 1000
"""How many due jobs of a queue are looked at, so that a long backlog costs no more."""

_NOW: Any = bindparam("now")


def _levels() -> Any:
    """The priorities in use of each open queue: the ready index is sorted by them first."""
    opened = (
        select(queues.c.name)
        .where(
            one_of(queues.c.name, "names"),
            queues.c.paused.is_(False),
            queues.c.cooldown_until.is_(None) | (queues.c.cooldown_until <= _NOW),
        )
        .cte("opened")
    )

    def lowest(queue: Any, *above: Any) -> Any:
        return (
            select(jobs.c.priority)
            .where(jobs.c.queue == queue, text(READY), *above)
            .order_by(jobs.c.priority)
            .limit(1)
            .scalar_subquery()
        )

    levels = select(opened.c.name, lowest(opened.c.name).label("priority")).cte(
        "levels", recursive=True
    )
    higher = lowest(levels.c.name, jobs.c.priority > levels.c.priority)
    levels = levels.union_all(select(levels.c.name, higher).where(levels.c.priority.is_not(None)))
    return (
        select(levels.c.name, levels.c.priority)
        .where(levels.c.priority.is_not(None))
        .order_by(levels.c.name, levels.c.priority)
    )


_LEVELS = _levels()
_first = (
    select(jobs.c.kind)
    .where(
        jobs.c.queue == bindparam("queue"),
        jobs.c.priority == bindparam("level"),
        jobs.c.run_at <= _NOW,
        text(READY),
    )
    .order_by(jobs.c.run_at, jobs.c.id)
    .limit(bindparam("at_most"))
    .subquery("first")
)
_KINDS = select(_first.c.kind, func.count().label("due")).group_by(_first.c.kind)


def due_kinds(tx: Tx, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """See ``ProcStore.due_kinds``."""
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for level in tx.execute(_LEVELS, {"names": list(names), "now": tx.now}).all():
        kinds = found[level.name]
        left = LOOKED_AT - sum(kinds.values())
        if left > 0:
            at = {"queue": level.name, "level": level.priority, "now": tx.now, "at_most": left}
            for row in tx.execute(_KINDS, at):
                kinds[row.kind] = kinds.get(row.kind, 0) + row.due
    return {queue: kinds for queue, kinds in found.items() if kinds}
