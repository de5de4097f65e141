"""Registrations of pods, and the queues that each of them declares."""

import secrets
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from sqlalchemy import BigInteger, bindparam, delete, insert, select, update

from forge_jobs.clock import duration_us
from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import Pod, PodLease
from forge_jobs.storage.sql.base.tables import pods, slots
from forge_jobs.storage.sql.base.transaction import KINDS, Tx
from forge_jobs.storage.sql.config.queues import declare_queues
from forge_jobs.storage.sql.fleet import allocations

NOW: Any = bindparam("now", type_=BigInteger)
OF_LEASE = (pods.c.host_id == bindparam("by"), pods.c.epoch == bindparam("at_epoch"))
QUEUES_OF = select(slots.c.queue).where(slots.c.host_id == bindparam("by"))
_FORGET_SLOTS = delete(slots).where(slots.c.host_id == bindparam("by"))
_FORGET_SLOT = _FORGET_SLOTS.where(slots.c.queue == bindparam("of_queue"))
_LIVES = select(pods.c.host_id).where(*OF_LEASE, pods.c.lease_until > NOW)
_CHANGE_QUEUES = (
    update(pods).where(*OF_LEASE, pods.c.lease_until > NOW).values(queues=bindparam("declared"))
)


def of_lease(lease: PodLease) -> dict[str, str]:
    """Return the parameters that identify the lease."""
    return {"by": lease.host_id, "at_epoch": lease.epoch}


def register(tx: Tx, pod: Pod, lease_for: timedelta) -> PodLease:
    """Admit a pod, see ``ProcStore.register``. Held jobs of its kinds are freed afterwards."""
    lease = PodLease(pod.host_id, secrets.token_hex(8))
    declared = list(dict.fromkeys(pod.queues))
    declare_queues(tx, declared)
    # Wait for claims that have looked at the known kinds and put jobs of others on hold: the
    # freeing that follows then sees what they held.
    tx.flavor.lock(tx.connection, KINDS)
    allocations.lock_queues(tx, [*declared, *declared_by(tx, pod.host_id)])
    left = forget_slots(tx, pod.host_id)
    fields = {
        "epoch": lease.epoch,
        "label": pod.label,
        "version": pod.version,
        "process_id": pod.process_id,
        "concurrency": pod.concurrency,
        "queues": _names(declared),
        "kinds": _names(pod.kinds),
        "routes": msgspec.json.encode(pod.routes).decode(),
        "last_beat_at": tx.now,
        "lease_until": tx.now + duration_us(lease_for),
        "draining": False,
        "quiet": False,
    }
    made = tx.execute(
        tx.flavor.insert_ignore(pods),
        {"host_id": pod.host_id, "started_at": tx.now, "gauges": None, **fields},
    )
    if made.rowcount == 0:
        tx.execute(update(pods).where(pods.c.host_id == pod.host_id).values(**fields))
    if declared:
        tx.execute(
            insert(slots),
            [
                {"queue": queue, "host_id": pod.host_id, "epoch": lease.epoch}
                for queue in sorted(declared)
            ],
        )
    allocations.move_versions(tx, [*left, *declared])
    tx.wake_fleet()
    return lease


def change_queues(tx: Tx, lease: PodLease, pod: Pod) -> bool:
    """See ``ProcStore.change_queues``."""
    values = {**of_lease(lease), "now": tx.now}
    if tx.execute(_LIVES, values).first() is None:
        return False
    declared = list(dict.fromkeys(pod.queues))
    # In the order of a registration, so that neither waits for the other in a circle.
    declare_queues(tx, declared)
    known = set(declared_by(tx, lease.host_id))
    allocations.lock_queues(tx, [*declared, *known])
    if not tx.execute(_CHANGE_QUEUES, {**values, "declared": _names(declared)}).rowcount:
        return False
    added = [queue for queue in sorted(declared) if queue not in known]
    if added:
        of_pod = {"host_id": lease.host_id, "epoch": lease.epoch}
        tx.execute(insert(slots), [{"queue": queue, **of_pod} for queue in added])
    gone = sorted(known.difference(declared))
    for queue in gone:
        tx.execute(_FORGET_SLOT, {"by": lease.host_id, "of_queue": queue})
    allocations.move_versions(tx, [*added, *gone])
    tx.wake_fleet()
    return True


def _names(names: Iterable[str]) -> str:
    return msgspec.json.encode(list(names)).decode()


def declared_by(tx: Tx, host_id: HostId) -> Sequence[str]:
    """Return the queues that a pod declares."""
    return tx.execute(QUEUES_OF, {"by": host_id}).scalars().all()


def forget_slots(tx: Tx, host_id: HostId) -> list[str]:
    """Remove a pod's declarations and grants, and return the queues of them."""
    left = declared_by(tx, host_id)
    if left:
        tx.execute(_FORGET_SLOTS, {"by": host_id})
    return list(left)
