"""Limits of queues: how many jobs of a key may run."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, delete, select, text

from forge_jobs.model.names import check_name
from forge_jobs.model.queues import LimitState, check_limits
from forge_jobs.storage.deleting import no_limit
from forge_jobs.storage.salvage import Fields
from forge_jobs.storage.sql.base.tables import PARKED, jobs, limits
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.config.queues import declare_queues

_OF_QUEUE = select(limits).where(limits.c.queue == bindparam("queue"))
_ALL = select(limits)
_REMOVE = delete(limits).where(
    limits.c.queue == bindparam("of"), limits.c.name == bindparam("named")
)
_PARKED_KEYS = (
    select(jobs.c.limit_name, jobs.c.limit_key)
    .where(jobs.c.queue == bindparam("queue"), jobs.c.limit_name == bindparam("name"), text(PARKED))
    .distinct()
)
_KEYS = ("queue", "name")


def lock_name(queue: str) -> str:
    """Return the name of the lock that claims within limits of a queue hold."""
    return f"limits:{queue}"


def lock(tx: Tx, queue: str) -> None:
    """Let no other claim of the queue look at limits until the end of the transaction."""
    tx.flavor.lock(tx.connection, lock_name(queue))


def _reopen(tx: Tx, queue: str, name: str) -> None:
    """Let the next claims look at all keys of a limit, after the limit has changed."""
    for row in tx.execute(_PARKED_KEYS, {"queue": queue, "name": name}).all():
        tx.free(queue, row.limit_name, row.limit_key)
    tx.wake_queue(queue)


def ensure(tx: Tx, queue: str, wished: Mapping[str, int], shares: Mapping[str, int]) -> None:
    """See ``ConfigStore.ensure_limits``."""
    check_name("queue", queue)
    check_limits(wished, shares)
    stored = {row.name: row for row in tx.execute(_OF_QUEUE, {"queue": queue})}
    changed = {
        name: (at_most, shares.get(name))
        for name, at_most in wished.items()
        if name not in stored or not stored[name].overridden
    }
    changed = {
        name: numbers
        for name, numbers in changed.items()
        if name not in stored or (stored[name].at_most, stored[name].share) != numbers
    }
    if changed:
        _write(tx, queue, changed, is_by_hand=False)


def override(tx: Tx, queue: str, name: str, at_most: int, share: int | None) -> None:
    """See ``ConfigStore.set_limit``."""
    check_name("queue", queue)
    check_limits({name: at_most}, {} if share is None else {name: share})
    _write(tx, queue, {name: (at_most, share)}, is_by_hand=True)


_Numbers = tuple[int, int | None]


def _write(tx: Tx, queue: str, changed: Mapping[str, _Numbers], *, is_by_hand: bool) -> None:
    declare_queues(tx, [queue])
    # Claims that have looked at the old numbers end first: what they put on hold is seen then.
    lock(tx, queue)
    rows: list[dict[str, Any]] = [
        {
            "queue": queue,
            "name": name,
            "at_most": at_most,
            "share": share,
            "overridden": is_by_hand,
        }
        for name, (at_most, share) in sorted(changed.items())
    ]
    tx.put(tx.flavor.insert_replace(limits, _KEYS), rows)
    for name in changed:
        _reopen(tx, queue, name)


def remove(tx: Tx, queue: str, name: str) -> None:
    """See ``ConfigStore.delete_limit``."""
    lock(tx, queue)
    if not tx.execute(_REMOVE, {"of": queue, "named": name}).rowcount:
        raise no_limit(queue, name)
    _reopen(tx, queue, name)


def states(tx: Tx) -> list[LimitState]:
    """See ``ConfigStore.limits``."""
    found = []
    for row in tx.execute(_ALL):
        read = Fields({**row._mapping})
        found.append(
            LimitState(
                queue=row.queue,
                name=row.name,
                at_most=read.at_most(),
                share=None if row.share is None else read.number("share"),
                overridden=read.flag("overridden"),
                unreadable=read.problems,
            )
        )
    return sorted(found, key=lambda state: (state.queue, state.name))
