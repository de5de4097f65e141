"""Slots: targets and grants per queue and pod.

A row of ``forge_slots`` is a pod's declaration of a queue, made when the pod registers. The grant
in the row counts while the pod's lease is live and of the row's epoch. Otherwise the grant is void
and never returns.

``allocation_version`` of a queue grows with everything that changes the allocation except time, so
the sum of all versions says whether any allocation was written.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    and_,
    bindparam,
    delete,
    exists,
    func,
    literal_column,
    select,
    text,
    update,
)

from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import Allocation, AllocationChange, PodLease, Slots
from forge_jobs.model.queues import MAX_WORKERS_LIMIT
from forge_jobs.storage.salvage import number_or
from forge_jobs.storage.sql.base.lists import PORTION, one_of, portions
from forge_jobs.storage.sql.base.tables import WAITING, jobs, pods, queues, slots
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.config.queues import workers_of

_NOW: Any = bindparam("now")
_is_live = exists().where(
    pods.c.host_id == slots.c.host_id, pods.c.epoch == slots.c.epoch, pods.c.lease_until > _NOW
)
_is_declared = exists().where(slots.c.queue == queues.c.name, _is_live)
_has_waiting = exists().where(jobs.c.queue == queues.c.name, text(WAITING))

_QUEUES = select(queues.c.name, queues.c.max_workers, queues.c.allocation_version).where(
    _is_declared | _has_waiting
)
_LIVE_SLOTS = select(
    slots.c.queue, slots.c.host_id, slots.c.target, slots.c.granted, pods.c.draining
).join_from(
    slots,
    pods,
    and_(
        pods.c.host_id == slots.c.host_id,
        pods.c.epoch == slots.c.epoch,
        pods.c.lease_until > _NOW,
    ),
)
_LIVE_SLOTS_OF = _LIVE_SLOTS.where(one_of(slots.c.queue, "names"))
_OF_NAMES = select(queues.c.name, queues.c.max_workers, queues.c.allocation_version).where(
    one_of(queues.c.name, "names")
)
_LOCK_QUEUES = (
    select(queues.c.name)
    .where(one_of(queues.c.name, "names"))
    .order_by(queues.c.name)
    .with_for_update(key_share=True)
)
_MOVE = (
    update(queues)
    .where(one_of(queues.c.name, "names"))
    .values(allocation_version=queues.c.allocation_version + 1)
)
# Wait for a beat that is about to renew such a lease. A later beat finds the slots gone, so a void
# grant never comes back to life.
_LOCK_LAPSED = (
    select(pods.c.host_id)
    .where(
        pods.c.lease_until <= _NOW,
        pods.c.host_id.in_(select(slots.c.host_id).where(one_of(slots.c.queue, "names"))),
    )
    .order_by(pods.c.host_id)
    .with_for_update(key_share=True)
)
_DELETE_VOID = delete(slots).where(one_of(slots.c.queue, "names"), ~_is_live)
_WRITE_SLOTS = update(slots).where(
    slots.c.queue == bindparam("of"), slots.c.host_id == bindparam("by")
)
_OWN = select(slots.c.queue, slots.c.granted).where(
    one_of(slots.c.queue, "names"),
    slots.c.host_id == bindparam("by"),
    slots.c.epoch == bindparam("at_epoch"),
)
_LOWER = (
    update(slots)
    .where(slots.c.queue == bindparam("of"), slots.c.host_id == bindparam("by"))
    .values(granted=bindparam("most"))
)

_COMMA: Any = literal_column("','")
FLEET: tuple[ColumnElement[Any], ...] = (
    select(func.sum(queues.c.allocation_version)).scalar_subquery().label("fleet_written"),
    select(func.aggregate_strings(pods.c.host_id, _COMMA))
    .where(pods.c.lease_until <= _NOW)
    .scalar_subquery()
    .label("fleet_lapsed"),
    select(func.aggregate_strings(queues.c.name, _COMMA))
    .where(~_is_declared, _has_waiting)
    .scalar_subquery()
    .label("fleet_orphaned"),
)
"""Columns of any one-row SELECT with a parameter ``now``: all that allocations depend on."""


def fleet_version(written: int | None, lapsed: str | None, orphaned: str | None) -> str:
    """Return one opaque text of the three :data:`FLEET` columns."""
    parts = [str(written or 0)]
    # The database joins the names in any order. Names hold no comma.
    parts += [",".join(sorted((names or "").split(","))) for names in (lapsed, orphaned)]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=12).hexdigest()


def lock_queues(tx: Tx, names: Iterable[str]) -> None:
    """Lock the queues, so that no other transaction changes their allocations until the end.

    Every change of slots begins here: queues are locked before pods and slots.
    """
    for portion in portions(sorted(set(names))):
        tx.execute(_LOCK_QUEUES, {"names": portion}).all()


def move_versions(tx: Tx, names: Iterable[str]) -> None:
    """Record that the allocations of these queues are being written."""
    for portion in portions(sorted(set(names))):
        tx.execute(_MOVE, {"names": portion})


def read_allocations(tx: Tx) -> list[Allocation]:
    """Return every queue that a live pod declares or that has waiting jobs, by name."""
    by_queue: defaultdict[str, dict[HostId, Slots]] = defaultdict(dict)
    draining: defaultdict[str, set[HostId]] = defaultdict(set)
    for row in tx.execute(_LIVE_SLOTS, {"now": tx.now}):
        by_queue[row.queue][row.host_id] = slots_of(row)
        if row.draining:
            draining[row.queue].add(row.host_id)
    found = [
        Allocation(
            queue=row.name,
            version=number_or(row.allocation_version, 0),
            max_workers=workers_of(row.max_workers),
            pods=by_queue[row.name],
            draining=frozenset(draining[row.name]),
        )
        for row in tx.execute(_QUEUES, {"now": tx.now})
    ]
    return sorted(found, key=lambda allocation: allocation.queue)


def slots_of(row: Any) -> Slots:
    """Return the slots in a row. An impossible number counts as none."""
    return Slots(_number_of_slots(row.target), _number_of_slots(row.granted))


def _number_of_slots(stored: object) -> int:
    number = number_or(stored, 0)
    return number if 0 <= number <= MAX_WORKERS_LIMIT else 0


def allocate(tx: Tx, changes: Sequence[AllocationChange]) -> list[bool]:
    """Write targets and raise grants, see ``ProcStore.allocate``."""
    lock_queues(tx, (change.queue for change in changes))
    verdicts: list[bool] = []
    left = [*changes]
    while left:
        some = _of_different_queues(left)
        verdicts += _allocate(tx, some)
        del left[: len(some)]
    return verdicts


def _of_different_queues(changes: Sequence[AllocationChange]) -> list[AllocationChange]:
    """Return the first changes up to one of a queue that another has changed."""
    found: dict[str, AllocationChange] = {}
    for change in changes[:PORTION]:
        if change.queue in found:
            break
        found[change.queue] = change
    return [*found.values()]


def _allocate(tx: Tx, changes: Sequence[AllocationChange]) -> list[bool]:
    """Write changes of different queues, however many by as many statements as one."""
    names = [change.queue for change in changes]
    found = {row.name: row for row in tx.execute(_OF_NAMES, {"names": names})}
    tx.execute(_LOCK_LAPSED, {"names": names, "now": tx.now}).all()
    stored: defaultdict[str, dict[HostId, Slots]] = defaultdict(dict)
    for row in tx.execute(_LIVE_SLOTS_OF, {"names": names, "now": tx.now}):
        stored[row.queue][row.host_id] = slots_of(row)
    verdicts = [_may_write(found.get(each.queue), each, stored[each.queue]) for each in changes]
    written: list[dict[str, Any]] = [
        {"of": each.queue, "by": host, "target": wish.target, "granted": wish.grant}
        for each, is_allowed in zip(changes, verdicts, strict=True)
        if is_allowed
        for host, wish in sorted(each.slots.items())
        if wish != stored[each.queue][host]
    ]
    if written:
        changed = sorted({each["of"] for each in written})
        # First, so that the grants in the table never add up to more than the maximum.
        tx.execute(_DELETE_VOID, {"names": changed, "now": tx.now})
        tx.execute(_WRITE_SLOTS, written)
        move_versions(tx, changed)
        tx.wake_beats()
    return verdicts


def _may_write(queue: Any, change: AllocationChange, stored: Mapping[HostId, Slots]) -> bool:
    return (
        queue is not None
        and number_or(queue.allocation_version, 0) == change.version
        and _is_allowed(stored, change.slots, workers_of(queue.max_workers))
    )


def _is_allowed(
    stored: Mapping[HostId, Slots], wished: Mapping[HostId, Slots], max_workers: int
) -> bool:
    if not wished.keys() <= stored.keys():
        return False
    if any(wish.grant < stored[host].grant for host, wish in wished.items()):
        return False
    if all(wish.grant == stored[host].grant for host, wish in wished.items()):
        return True
    after = {**stored, **wished}
    return sum(slots.grant for slots in after.values()) <= max_workers


def lower_grants(tx: Tx, lease: PodLease, grants: Mapping[str, int]) -> None:
    """Lower a pod's own grants, see ``ProcStore.lower_grants``."""
    lock_queues(tx, grants)
    sunk: list[dict[str, Any]] = []
    for names in portions(sorted(grants)):
        own = {"names": names, "by": lease.host_id, "at_epoch": lease.epoch}
        sunk += [
            {"of": row.queue, "by": lease.host_id, "most": grants[row.queue]}
            for row in tx.execute(_OWN, own)
            if number_or(row.granted, 0) > grants[row.queue]
        ]
    if sunk:
        tx.execute(_LOWER, sunk)
        move_versions(tx, (each["of"] for each in sunk))
        tx.wake_fleet()
