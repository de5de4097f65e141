"""Pods with leases, slot targets and grants, workers."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from forge_jobs.model.ids import HostId
from forge_jobs.model.metrics import PodMinute
from forge_jobs.model.processes import (
    Allocation,
    AllocationChange,
    Pod,
    PodGauges,
    PodLease,
    PodState,
    SetBack,
    WorkerState,
)


class ProcStore(Protocol):
    """Pods with leases, slot targets and grants, workers."""

    store_id: str

    async def register(self, pod: Pod, lease_for: timedelta) -> PodLease:
        """Admit a pod, or admit it again after its lease ran out: a new epoch, no grants.

        Declares its queues (created with default settings when unknown), and frees held jobs
        whose kind it knows, all before it returns but not in the same step: they may be many.
        Must not wait for a job that somebody's open transaction holds; :meth:`free_held_jobs`
        comes to it. Wakes the coordinator.
        """
        ...

    async def free_held_jobs(self, limit: int) -> int:
        """Free jobs on hold whose kind a pod with a live lease knows; at most ``limit``, how many.

        For those that :meth:`register` had to leave. A store where nobody's transaction can hold
        a job leaves none.
        """
        ...

    async def set_draining(self, lease: PodLease) -> None:
        """The pod takes no new work: its targets count as zero. Wakes the coordinator.

        Repeated with each beat of a pod that drains. Of one that drains already it changes
        nothing and wakes nobody.
        """
        ...

    async def unregister(self, lease: PodLease) -> None:
        """Forget the pod and void its grants. No-op for another epoch. Wakes the coordinator."""
        ...

    async def pods(self) -> list[PodState]:
        """Every pod not yet dropped, oldest first; those with a lease that ran out too."""
        ...

    async def routes(self) -> dict[str, str | None]:
        """Every kind that a pod publishes, and the queue it names for the kind; None: no queue.

        Where pods differ, the word of a pod with a live lease counts, and of those the word of
        the pod that started last.
        """
        ...

    async def workers(self, host_id: HostId | None = None) -> list[WorkerState]:
        """Workers whose start is known, of one pod or all."""
        ...

    async def drop_dead_pods(self, dead_for: timedelta, limit: int) -> list[HostId]:
        """Forget pods whose lease ran out at least ``dead_for`` ago and that hold no claim."""
        ...

    async def bring_back_leases(self) -> SetBack:
        """Let the leases and beats count from now that begin later than now: the clock has been
        set back since they were written.

        Pods' leases, beats of claims and the leader's lease keep their length. So none ends
        sooner than a whole one from now, the living renew theirs before, and none is trusted
        for longer than one that begins now. A stamp up to a second ahead may stay. A cool-down
        becomes no longer than the longest of its queue. Must never wait for a caller's open
        transaction. Not one atomic step: after an error some may have been brought back.
        """
        ...

    async def allocations(self) -> list[Allocation]:
        """Every queue that a pod with a live lease declares, or that has jobs waiting, by name.

        Grants of a pod whose lease ran out do not appear: they are void.
        """
        ...

    async def live_pods(self) -> list[Pod]:
        """Every pod with a live lease as it described itself, draining ones too, in any order.

        What it publishes of kinds and queues is left out, see :meth:`routes`.
        """
        ...

    async def due_kinds(self, names: Sequence[str]) -> dict[str, dict[str, int]]:
        """How many jobs of each kind are due, per queue of these that has any.

        Of each queue it must look at the first thousand due jobs in the order of claims, and may
        stop there: a longer backlog costs no more. Held jobs are not due. A queue that is paused
        or cools down is left out, for more slots would not help it.
        """
        ...

    async def allocate(self, changes: Sequence[AllocationChange]) -> list[bool]:
        """Write targets and raise grants. Per item False, and nothing written, when the version has
        moved on, a pod's lease ran out since, a grant would sink, or the sum of grants would
        exceed the queue's ``max_workers`` as stored now.

        An exception to the last: grants that do not rise may exceed a lowered maximum.
        Void grants are removed in the same step. A change that would write what is there
        writes nothing and is True. Wakes beats when anything was written.
        """
        ...

    async def lower_grants(self, lease: PodLease, grants: Mapping[str, int]) -> None:
        """The pod gives slots back: each grant becomes at most the given number. Never raises
        one. Wakes the coordinator when any sank."""
        ...

    async def record_gauges(self, lease: PodLease, minute: datetime, gauges: PodGauges) -> None:
        """The pod's own measurements of one minute."""
        ...

    async def gauges(self, since: datetime, until: datetime) -> list[PodMinute]:
        """Pod minutes in [``since``, ``until``), oldest first; hours, each with what the pod
        measured last in it, where minutes are no longer kept."""
        ...
