"""Queues that are deleted, and those that are used although they were."""

from sqlalchemy import Select, bindparam, delete, exists, func, select

from forge_jobs.storage.deleting import MOST_COUNTED, in_use, unknown_queue
from forge_jobs.storage.sql.base.tables import jobs, pods, queues, slots
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.config.queues import declare_queues

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


def delete_queue(tx: Tx, name: str) -> None:
    """See ``ConfigStore.delete_queue``."""
    if tx.execute(_LOCKED, {"of": name}).first() is None:
        raise unknown_queue(name)
    found = tx.execute(_JOBS, {"of": name}).scalar_one()
    served = tx.execute(_PODS, {"of": name, "now": tx.now}).scalar_one()
    if found or served:
        raise in_use(name, found, served)
    tx.execute(_DELETE_SLOTS, {"of": name})
    tx.execute(_DELETE, {"of": name})
    tx.deleted_queues.add(name)
    tx.wake_beats()
    tx.wake_fleet()


def _unlisted() -> Select[str]:
    """Queues with jobs or pods and without a row: one step by the index for each queue."""
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
    """Queues that are used and have no row, as after a deletion beside a call under way."""
    return tuple(row.name for row in tx.execute(_UNLISTED))


def list_again(tx: Tx, names: tuple[str, ...]) -> None:
    """Make their rows."""
    declare_queues(tx, names)
    tx.wake_beats()
    tx.wake_fleet()
