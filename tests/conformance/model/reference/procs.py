"""Pods, their leases, and who may run how much of what."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import Hold, JobStatus
from forge_jobs.model.metrics import PodMinute
from forge_jobs.model.processes import (
    Allocation,
    AllocationChange,
    Pod,
    PodGauges,
    PodLease,
    PodState,
    Slots,
    WorkerState,
)
from tests.conformance.model.reference.requests import ReferenceRequests
from tests.conformance.model.reference.state import ZERO, ModelPod, World

_NONE = Slots(0, 0)


class ReferenceProcs(ReferenceRequests):
    """``ProcStore``."""

    def __init__(self, world: World) -> None:
        self._world = world

    def register(self, pod: Pod, lease_for: timedelta) -> PodLease:
        world = self._world
        for name in pod.queues:
            world.declare(name)
        before = world.pods.get(pod.host_id)
        world.move_versions(*pod.queues, *(before.slots if before else ()))
        epoch = str(world.new_number())
        world.once_known.update(pod.kinds)
        world.pods[pod.host_id] = ModelPod(
            pod=pod,
            epoch=epoch,
            started_at=before.started_at if before else world.now,
            last_beat_at=world.now,
            until=world.now + lease_for,
            slots=dict.fromkeys(pod.queues, _NONE),
            gauges=before.gauges if before else None,
        )
        for job in world.jobs.values():
            if job.request.kind in pod.kinds and job.hold is not Hold.STRUCK:
                job.hold, job.may_be_held = None, False
        return PodLease(pod.host_id, epoch)

    def _of(self, lease: PodLease) -> ModelPod | None:
        pod = self._world.pods.get(lease.host_id)
        return pod if pod is not None and pod.epoch == lease.epoch else None

    def change_queues(self, lease: PodLease, pod: Pod, lease_for: timedelta) -> bool:
        world = self._world
        found = self._of(lease)
        if found is None or found.until <= world.now:
            return False
        changed = found.slots.keys() ^ set(pod.queues)
        for name in pod.queues:
            world.declare(name)
        found.pod = replace(found.pod, queues=pod.queues)
        found.slots = {name: found.slots.get(name, _NONE) for name in pod.queues}
        world.move_versions(*changed)
        return True

    def set_draining(self, lease: PodLease, *, quiet: bool = False) -> None:
        self._drain(lease, True, quiet)

    def end_draining(self, lease: PodLease) -> None:
        self._drain(lease, False, False)

    def _drain(self, lease: PodLease, drains: bool, quiet: bool) -> None:
        pod = self._of(lease)
        if pod is None:
            return
        if pod.draining != drains:
            self._world.move_versions(*pod.slots)
        pod.draining, pod.quiet = drains, quiet

    def unregister(self, lease: PodLease) -> None:
        pod = self._of(lease)
        if pod is not None:
            self._forget(pod)

    def _forget(self, pod: ModelPod) -> None:
        self._world.move_versions(*pod.slots)
        del self._world.pods[pod.pod.host_id]

    def drop_dead_pods(self, dead_for: timedelta, limit: int) -> list[HostId]:
        world = self._world
        dead = [
            pod
            for host_id, pod in world.pods.items()
            if pod.until + dead_for <= world.now and not world.claimed(host_id)
        ]
        for pod in dead:
            self._forget(pod)
        return [pod.pod.host_id for pod in dead[:limit]]

    def pods(self) -> list[PodState]:
        return [self._state(pod) for pod in self._world.pods.values()]

    def _state(self, pod: ModelPod) -> PodState:
        world = self._world
        live = pod.until > world.now
        return PodState(
            pod=pod.pod,
            started_at=pod.started_at,
            last_beat_at=pod.last_beat_at,
            lease_remaining=max(ZERO, pod.until - world.now),
            draining=pod.draining,
            quiet=pod.quiet,
            slots=dict(pod.slots) if live else dict.fromkeys(pod.slots, _NONE),
            in_progress=dict(Counter(job.queue for job in world.claimed(pod.pod.host_id))),
            gauges=pod.gauges,
        )

    def workers(self, host_id: HostId | None = None) -> list[WorkerState]:
        return [
            WorkerState(
                worker_id=job.worker_id,
                host_id=job.host_id,
                queue=job.queue,
                job_id=job.id,
                kind=job.request.kind,
                started_at=job.started_at,
                cancel_requested=job.cancel_requested,
            )
            for job in self._world.claimed(host_id)
            if job.started_at is not None
        ]

    # -- measurements

    def record_gauges(self, lease: PodLease, minute: datetime, gauges: PodGauges) -> None:
        """Record the gauges. A pod shows the gauges of the newest minute."""
        world = self._world
        world.gauges[minute, lease.host_id] = gauges
        pod = self._of(lease)
        if pod and all(at <= minute for at, host in world.gauges if host == lease.host_id):
            pod.gauges = gauges

    def gauges(self, since: datetime, until: datetime) -> list[PodMinute]:
        return [
            PodMinute(host_id=host_id, minute=minute, gauges=gauges)
            for (minute, host_id), gauges in sorted(self._world.gauges.items(), key=lambda e: e[0])
            if since <= minute < until
        ]

    # -- what the fleet knows

    def live_pods(self) -> list[Pod]:
        return [replace(pod.pod, routes={}) for pod in self._world.live_pods()]

    def due_kinds(self, names: Sequence[str]) -> dict[str, dict[str, int]]:
        world = self._world
        found = {}
        for name in names:
            queue = world.queues.get(name)
            cooling = queue and queue.cooldown_until and queue.cooldown_until > world.now
            if queue and not queue.paused_since and not cooling and world.due(name):
                found[name] = dict(Counter(job.request.kind for job in world.due(name)))
        return found

    # -- slots

    def _live(self, queue: str) -> dict[HostId, ModelPod]:
        live = self._world.live_pods()
        return {pod.pod.host_id: pod for pod in live if queue in pod.slots}

    def allocations(self) -> list[Allocation]:
        world = self._world
        waiting = {JobStatus.BLOCKED, JobStatus.PENDING, JobStatus.FAILED}
        found = []
        for name, queue in sorted(world.queues.items()):
            live = self._live(name)
            if live or any(job.status in waiting for job in world.of_queue(name)):
                found.append(
                    Allocation(
                        queue=name,
                        version=queue.version,
                        max_workers=queue.settings.max_workers,
                        pods={host: pod.slots[name] for host, pod in live.items()},
                        draining=frozenset(host for host, pod in live.items() if pod.draining),
                    )
                )
        return found

    def allocate(self, changes: Sequence[AllocationChange]) -> list[bool]:
        return [self._allocate(change) for change in changes]

    def _allocate(self, change: AllocationChange) -> bool:
        queue = self._world.queues.get(change.queue)
        live = self._live(change.queue)
        if queue is None or queue.version != change.version or not change.slots.keys() <= set(live):
            return False
        before = {host: pod.slots[change.queue] for host, pod in live.items()}
        rises = {host: wish.grant - before[host].grant for host, wish in change.slots.items()}
        after = before | dict(change.slots)
        above = sum(slots.grant for slots in after.values()) > queue.settings.max_workers
        if any(rise < 0 for rise in rises.values()) or (any(rises.values()) and above):
            return False
        if after != before:
            for host, wish in change.slots.items():
                live[host].slots[change.queue] = wish
            self._world.move_versions(change.queue)
        return True

    def lower_grants(self, lease: PodLease, grants: Mapping[str, int]) -> None:
        pod = self._of(lease)
        for name, most in grants.items() if pod else ():
            slots = pod.slots.get(name, _NONE) if pod else _NONE
            if pod and slots.grant > most:
                pod.slots[name] = Slots(slots.target, most)
                self._world.move_versions(name)
