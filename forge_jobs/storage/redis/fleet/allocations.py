"""Slots: targets and grants per queue and pod.

All that speaks for and against a grant lies with the queue: the maximum, the version, and a copy of
the lease of each pod that declares the queue. So the sum of grants holds at every instant, and no
queue waits for another.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import Allocation, AllocationChange, PodLease, Slots
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.queues import in_all_queues, in_some_queues
from forge_jobs.storage.redis.base.scripts import item_of, request_of


class StoredAllocation(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``allocation.lua``.

    :param has_waiting: jobs wait here
    :param pods: those with a live lease: host, target, grant, whether the pod drains
    """

    version: int
    max_workers: int
    has_waiting: bool
    pods: list[tuple[str, int, int, bool]]


MaybeStored = list[StoredAllocation]
"""Return one name, or none where there is no such queue."""


async def read_allocations(database: Database) -> list[Allocation]:
    """Return every queue that a live pod declares or that has waiting jobs, by name."""
    return to_allocations(await in_all_queues(database, "allocations", [], MaybeStored))


async def read_queues(database: Database, queues: Sequence[str]) -> dict[str, MaybeStored]:
    """Return what is stored of these queues, as far as they answer."""
    return await in_some_queues(database, "allocations", queues, [], MaybeStored)


def to_allocations(stored: Mapping[str, MaybeStored]) -> list[Allocation]:
    """The answer of ``ProcStore.allocations``."""
    return [
        Allocation(
            queue=queue,
            version=found.version,
            max_workers=found.max_workers,
            pods={HostId(host): Slots(target, grant) for host, target, grant, _ in found.pods},
            draining=frozenset(HostId(host) for host, _, _, draining in found.pods if draining),
        )
        for queue, maybe in sorted(stored.items())
        for found in maybe
        if found.pods or found.has_waiting
    ]


def fleet_version(stored: Mapping[str, MaybeStored]) -> str:
    """An opaque text that differs whenever :func:`to_allocations` does."""
    digest = hashlib.blake2b(digest_size=12)
    for allocation in to_allocations(stored):
        pods = sorted((host, slots.target, slots.grant) for host, slots in allocation.pods.items())
        draining = sorted(allocation.draining)
        shown = (allocation.queue, allocation.version, allocation.max_workers, pods, draining)
        digest.update(msgspec.msgpack.encode(shown))
    return digest.hexdigest()


async def allocate(database: Database, changes: Sequence[AllocationChange]) -> list[bool]:
    """Write targets and raise grants. See ``ProcStore.allocate``."""
    of_queue: defaultdict[str, list[int]] = defaultdict(list)
    requests: defaultdict[str, list[object]] = defaultdict(list)
    for index, change in enumerate(changes):
        of_queue[change.queue].append(index)
        wished = [
            item_of("allocate", "wish", host=host, target=slots.target, grant=slots.grant)
            for host, slots in change.slots.items()
        ]
        requests[database.keys.queue(change.queue)].append(
            item_of("allocate", "change", version=change.version, wished=wished)
        )
    answers, _ = await database.run_some("allocate", requests, list[bool])
    written = [False] * len(changes)
    for queue, indexes in of_queue.items():
        given = answers.get(database.keys.queue(queue), [False] * len(indexes))
        for index, was_written in zip(indexes, given, strict=True):
            written[index] = was_written
    return written


async def lower_grants(database: Database, lease: PodLease, grants: Mapping[str, int]) -> None:
    """Lower a pod's own grants. See ``ProcStore.lower_grants``."""
    requests = {
        database.keys.queue(queue): request_of(
            "lower_grants", host=lease.host_id, epoch=lease.epoch, most=most
        )
        for queue, most in grants.items()
    }
    await database.run("lower_grants", requests, bool)
