"""Pods, their leases, and workers.

A pod's lease lies in two places: with the fleet, and with each queue that the pod declares, where
the lease gates claims and grants. A change of both goes in the order that leaves, at a crash in
between, a lease that no pod renews, and that runs out.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec

from forge_jobs.clock import duration_us, from_us
from forge_jobs.model.ids import HostId, JobId, WorkerId
from forge_jobs.model.metrics import PodMinute
from forge_jobs.model.processes import (
    Allocation,
    AllocationChange,
    Pod,
    PodGauges,
    PodLease,
    PodState,
    SetBack,
    Slots,
    WorkerState,
)
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.job_rows import StoredFields
from forge_jobs.storage.redis.base.queues import (
    decode_pod,
    due_kinds,
    in_some_queues,
    live_pods,
    of_all_pods,
    queue_names,
)
from forge_jobs.storage.redis.base.scripts import item_of, request_of
from forge_jobs.storage.redis.fleet import allocations
from forge_jobs.storage.redis.fleet.gauges import decode_gauges, read_gauges, record_gauges
from forge_jobs.storage.redis.fleet.kinds import KindCalls
from forge_jobs.storage.redis.fleet.registering import change_queues, register
from forge_jobs.storage.redis.fleet.requests import RequestCalls
from forge_jobs.storage.redis.fleet.set_back import bring_back_leases
from forge_jobs.storage.salvage import UNREADABLE, no_pod, salvaged_pod

_LOOKED_AT = 1000
"""How many dead pods, or claims in search of workers, one step looks at."""


_decode_routes = msgspec.json.Decoder(dict[str, str | None]).decode


class _StoredPod(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``pod_list`` about a pod, "" for a value that is not set."""

    epoch: str
    doc: str
    started: str
    beat: str
    lease_until: str
    draining: str
    gauges: str
    published: str
    quiet: str
    host: str


class _Published(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``routes``: the same words of some pods, and when the last of them started."""

    routes: str
    lives: bool
    started: int


class _Routes(msgspec.Struct, frozen=True, array_like=True):
    found: list[_Published]
    rest: list[str]


class _PodList(msgspec.Struct, frozen=True, array_like=True):
    now: int
    queues: list[str]
    pods: list[_StoredPod]
    rest: list[str]


class _PodSlots(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``pod_slots`` about a queue.

    :param slots: host, epoch, target, grant
    :param owners: host and number of claims, in turn
    """

    slots: list[tuple[str, str, int, int]]
    owners: list[str]


class _DeadPods(msgspec.Struct, frozen=True, array_like=True):
    queues: list[str]
    pods: list[tuple[str, str]]


class _Workers(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``workers`` about a queue.

    :param looked_at: how many claims
    :param workers: job, host, worker, kind, start, and whether a cancel was asked for
    """

    looked_at: int
    workers: list[tuple[str, str, str, str, int, bool]]


async def _drain(database: Database, lease: PodLease, drains: bool, quiet: bool = False) -> None:
    change = {"host": lease.host_id, "epoch": lease.epoch, "drains": drains}
    request = request_of("pod_drain", **change, quiet=quiet)
    queues = await database.run_one("pod_drain", database.keys.fleet, request, list[str])
    await in_some_queues(database, "slot_drain", queues, request_of("slot_drain", **change), bool)


async def _unregister(database: Database, lease: PodLease) -> None:
    await _forget(database, await queue_names(database), [(lease.host_id, lease.epoch)], None)


async def _forget(
    database: Database,
    queues: Sequence[str],
    pods: Sequence[tuple[str, str]],
    dead_for: int | None,
) -> list[bool]:
    """Void the slots of pods, then forget them. Return for each pod whether it was known.

    In queues that are silent their slots run out.
    """
    left = [item_of("slot_leave", "pod", host=host, epoch=epoch) for host, epoch in pods]
    await in_some_queues(database, "slot_leave", queues, left, bool)
    gone = [item_of("pod_forget", "pod", host=host, epoch=epoch) for host, epoch in pods]
    age = False if dead_for is None else dead_for
    request = request_of("pod_forget", dead_for=age, pods=gone)
    return await database.run_one("pod_forget", database.keys.fleet, request, list[bool])


async def _drop_dead_pods(database: Database, dead_for: timedelta, limit: int) -> list[HostId]:
    at_least = max(0, duration_us(dead_for))
    request = request_of("dead_pods", dead_for=at_least, limit=_LOOKED_AT)
    dead = await database.run_one("dead_pods", database.keys.fleet, request, _DeadPods)
    if not dead.pods:
        return []
    hosts = [host for host, _ in dead.pods]
    holding = await in_some_queues(database, "claim_holders", dead.queues, hosts, list[str])
    if len(holding) < len(dead.queues):
        return []  # they may hold claims where nothing answers
    busy = {host for found in holding.values() for host in found}
    idle = [pod for pod in dead.pods if pod[0] not in busy][: max(0, limit)]
    gone = await _forget(database, dead.queues, idle, at_least)
    return [HostId(host) for (host, _), went in zip(idle, gone, strict=True) if went]


async def list_pods(database: Database) -> list[PodState]:
    """See ``ProcStore.pods``."""
    answers = await of_all_pods(database, "pod_list", _PodList)
    fleet = answers[0]
    by_pod: defaultdict[tuple[str, str], dict[str, Slots]] = defaultdict(dict)
    held: defaultdict[str, dict[str, int]] = defaultdict(dict)
    in_queues = await in_some_queues(database, "pod_slots", fleet.queues, [], _PodSlots)
    for queue, found in in_queues.items():
        for host, epoch, target, grant in found.slots:
            by_pod[host, epoch][queue] = Slots(target, grant)
        for host, claims in zip(found.owners[::2], found.owners[1::2], strict=True):
            held[host][queue] = int(claims)
    states = [
        _pod_state(stored, by_pod[stored.host, stored.epoch], held[stored.host], fleet.now)
        for answer in answers
        for stored in answer.pods
    ]
    return sorted(states, key=lambda state: (state.started_at, state.pod.host_id))


def _pod_state(
    record: _StoredPod, of_pod: Mapping[str, Slots], held: Mapping[str, int], now: int
) -> PodState:
    read = StoredFields(msgspec.structs.asdict(record))
    remaining = max(0, read.number("lease_until") - now)
    pod = read.read("doc", decode_pod, None) or no_pod(record.host)
    found = PodState(
        pod=msgspec.structs.replace(pod, routes=_named_queues(record.published, read)),
        started_at=read.instant("started"),
        last_beat_at=read.instant("beat"),
        lease_remaining=timedelta(microseconds=remaining),
        draining=bool(record.draining),
        quiet=bool(record.quiet),
        slots=of_pod if remaining else dict.fromkeys(of_pod, Slots(0, 0)),
        in_progress=held,
        gauges=read.read("gauges", decode_gauges, None) if record.gauges else None,
    )
    return salvaged_pod(found, read.problems)


async def _published_routes(database: Database) -> dict[str, str | None]:
    answers = await of_all_pods(database, "routes", _Routes)
    published_by = [each for answer in answers for each in answer.found]
    found: dict[str, str | None] = {}
    for published in sorted(published_by, key=lambda each: (each.lives, each.started)):
        # The record of the pod names the problem.
        with suppress(*UNREADABLE):
            found.update(_decode_routes(published.routes))
    return found


def _named_queues(published: str, read: StoredFields) -> dict[str, str]:
    nothing: dict[str, str | None] = {}
    routes = read.read("published", _decode_routes, nothing) if published else nothing
    return {kind: queue for kind, queue in routes.items() if queue}


async def read_workers(database: Database, host_id: HostId | None) -> list[WorkerState]:
    """See ``ProcStore.workers``."""
    queues = await queue_names(database)
    found: dict[str, WorkerState] = {}
    start = 0
    while queues:
        wanted = False if host_id is None else host_id
        request = request_of("workers", **{"from": start}, limit=_LOOKED_AT, wanted=wanted)
        answers = await in_some_queues(database, "workers", queues, request, _Workers)
        for queue, answer in answers.items():
            for job_id, host, worker, kind, started, cancel in answer.workers:
                found[job_id] = WorkerState(
                    worker_id=WorkerId(worker),
                    host_id=HostId(host),
                    queue=queue,
                    job_id=JobId(job_id),
                    kind=kind,
                    started_at=from_us(started),
                    cancel_requested=cancel,
                )
        queues = [queue for queue, answer in answers.items() if answer.looked_at == _LOOKED_AT]
        start += _LOOKED_AT
    return sorted(found.values(), key=lambda each: (each.host_id, each.queue, each.job_id))


class RedisProcStore(RequestCalls, KindCalls):
    """The ``ProcStore`` on Redis."""

    def __init__(self, database: Database) -> None:
        self.store_id = database.store_id
        self._database = database

    async def register(self, pod: Pod, lease_for: timedelta) -> PodLease:
        return await register(self._database, pod, lease_for)

    async def change_queues(self, lease: PodLease, pod: Pod, lease_for: timedelta) -> bool:
        return await change_queues(self._database, lease, pod, lease_for)

    async def free_held_jobs(self, limit: int) -> int:
        # Nobody's transaction holds a job here: registering leaves none.
        return 0

    async def set_draining(self, lease: PodLease, *, quiet: bool = False) -> None:
        await _drain(self._database, lease, True, quiet)

    async def end_draining(self, lease: PodLease) -> None:
        await _drain(self._database, lease, False)

    async def unregister(self, lease: PodLease) -> None:
        await _unregister(self._database, lease)

    async def pods(self) -> list[PodState]:
        return await list_pods(self._database)

    async def routes(self) -> dict[str, str | None]:
        return await _published_routes(self._database)

    async def workers(self, host_id: HostId | None = None) -> list[WorkerState]:
        return await read_workers(self._database, host_id)

    async def drop_dead_pods(self, dead_for: timedelta, limit: int) -> list[HostId]:
        return await _drop_dead_pods(self._database, dead_for, limit)

    async def bring_back_leases(self) -> SetBack:
        return await bring_back_leases(self._database)

    async def allocations(self) -> list[Allocation]:
        return await allocations.read_allocations(self._database)

    async def live_pods(self) -> list[Pod]:
        return await live_pods(self._database)

    async def due_kinds(self, names: Sequence[str]) -> dict[str, dict[str, int]]:
        return await due_kinds(self._database, names)

    async def allocate(self, changes: Sequence[AllocationChange]) -> list[bool]:
        return await allocations.allocate(self._database, changes)

    async def lower_grants(self, lease: PodLease, grants: Mapping[str, int]) -> None:
        await allocations.lower_grants(self._database, lease, grants)

    async def record_gauges(self, lease: PodLease, minute: datetime, gauges: PodGauges) -> None:
        await record_gauges(self._database, lease, minute, gauges)

    async def gauges(self, since: datetime, until: datetime) -> list[PodMinute]:
        return await read_gauges(self._database, since, until)
