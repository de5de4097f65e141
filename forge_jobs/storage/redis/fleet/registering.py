"""Registrations of pods, and the queues that each of them declares."""

import secrets
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from forge_jobs.clock import duration_us
from forge_jobs.model.processes import Pod, PodLease
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.queues import decode_pod, in_some_queues
from forge_jobs.storage.redis.base.scripts import item_of, request_of
from forge_jobs.storage.redis.config.queues import DEFAULT_FIELDS
from forge_jobs.storage.salvage import UNREADABLE

FREED_AT_ONCE = 1000
"""The most held jobs that one step frees, and the most kinds that one step looks at."""


async def register(database: Database, pod: Pod, lease_for: timedelta) -> PodLease:
    """See ``ProcStore.register``."""
    lease = PodLease(pod.host_id, secrets.token_hex(8))
    declared = tuple(dict.fromkeys(pod.queues))
    # Beside what the pod says of itself, which each beat reads.
    published = msgspec.json.encode(dict.fromkeys(pod.kinds) | dict(pod.routes)).decode()
    length = duration_us(lease_for)
    # The fleet first: from here on the pod's kinds are known. A call that puts a job of such a kind
    # on hold has looked before, and is refused once the next step has come to its queue.
    queues = await database.run_one(
        "pod_register",
        database.keys.fleet,
        request_of(
            "pod_register",
            host=lease.host_id,
            epoch=lease.epoch,
            doc=_document(pod, declared),
            published=published,
            lease_for=length,
            declared=declared,
        ),
        list[str],
    )
    # All queues: an earlier registration may have left a slot in any of them.
    requests = {
        database.keys.queue(name): request_of(
            "pod_admit",
            host=lease.host_id,
            epoch=lease.epoch,
            lease_for=length,
            drains=False,
            defaults=DEFAULT_FIELDS if name in declared else False,
        )
        for name in queues
    }
    # The pod comes to those that are silent now by its beats.
    has_held = (await database.run_some("pod_admit", requests, bool)).found
    # Were the pod to die here, what is left would be freed by the next one that knows the kinds.
    for base in (base for base, held in has_held.items() if held):
        await free_held_jobs(database, base, pod.kinds)
    return lease


async def change_queues(
    database: Database, lease: PodLease, pod: Pod, lease_for: timedelta
) -> bool:
    """See ``ProcStore.change_queues``."""
    declared = tuple(dict.fromkeys(pod.queues))
    of_lease = {"host": lease.host_id, "epoch": lease.epoch}
    before, drains = await database.run_one(
        "pod_change",
        database.keys.fleet,
        request_of("pod_change", **of_lease, doc=_document(pod, declared), declared=declared),
        tuple[str, bool],
    )
    if not before:
        return False
    try:
        known = set(decode_pod(before).queues)
    except UNREADABLE:
        known = set()
    admit = request_of(
        "pod_admit",
        **of_lease,
        lease_for=duration_us(lease_for),
        drains=drains,
        defaults=DEFAULT_FIELDS,
    )
    added = [name for name in declared if name not in known]
    has_held = await in_some_queues(database, "pod_admit", added, admit, bool)
    for name in (name for name, held in has_held.items() if held):
        await free_held_jobs(database, database.keys.queue(name), pod.kinds)
    left = [item_of("slot_leave", "pod", **of_lease)]
    await in_some_queues(database, "slot_leave", known.difference(declared), left, bool)
    return True


def _document(pod: Pod, declared: tuple[str, ...]) -> str:
    """Return what the pod says of itself, without the routes, which are published apart."""
    return msgspec.json.encode(msgspec.structs.replace(pod, queues=declared, routes={})).decode()


async def free_held_jobs(database: Database, base: str, kinds: Sequence[str]) -> None:
    """Free the jobs of these kinds that are on hold in a queue."""
    for start in range(0, len(kinds), FREED_AT_ONCE):
        some = kinds[start : start + FREED_AT_ONCE]
        request = request_of("free_held", most=FREED_AT_ONCE, kinds=some)
        while await database.run_one("free_held", base, request, int) == FREED_AT_ONCE:
            pass
