"""Pods with leases, slot targets and grants, workers, requests to pods."""

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
    PublishedKind,
    SetBack,
    WorkerState,
)
from forge_jobs.storage.protocols.pod_requests import AskedStore


class ProcStore(AskedStore, Protocol):
    """Pods with leases, slot targets and grants, workers, requests to pods."""

    store_id: str

    async def register(self, pod: Pod, lease_for: timedelta) -> PodLease:
        """Admit a pod, or admit a pod again after its lease ran out: a new epoch, no grants.

        Declares the pod's queues (created with default settings when unknown), and frees held jobs
        whose kind the pod knows. All of that is done before the call returns, but not in the same
        step: the jobs may be many. Must not wait for a job that a caller's open transaction holds:
        such a job is left to :meth:`free_held_jobs`. Wakes the coordinator.
        """
        ...

    async def change_queues(self, lease: PodLease, pod: Pod, lease_for: timedelta) -> bool:
        """Let a registered pod declare ``pod.queues`` in place of the queues of before.

        Slots in queues that stay are kept. New queues are created with default settings where they
        are unknown, and have no slots yet. Slots in queues that go are void. Wakes the coordinator.
        May be repeated. Not one step on every store: after a call that was cut short the next beat
        may find the lease lost, so that the pod registers again.

        :param pod: as registered but for the queues
        :param lease_for: the length of the lease in new queues. The lease itself is not renewed
        :returns: False: nothing was changed, because the lease ran out or is of another epoch
        """
        ...

    async def free_held_jobs(self, limit: int) -> int:
        """Free jobs on hold whose kind a pod with a live lease knows.

        For the jobs that :meth:`register` had to leave. A store where no caller's transaction can
        hold a job leaves none.

        :param limit: how many jobs to free at most
        :returns: how many jobs were freed
        """
        ...

    async def set_draining(self, lease: PodLease, *, quiet: bool = False) -> None:
        """Record that the pod takes no new work: its targets count as zero. Wakes the coordinator.

        Repeated with each beat of a pod that drains. A repeat changes nothing and wakes no waiter.

        :param quiet: the pod does not stop: :meth:`end_draining` may follow. A quiet pod that stops
            later leaves the allocations as they are
        """
        ...

    async def end_draining(self, lease: PodLease) -> None:
        """Record that the pod takes work again. Wakes the coordinator.

        No-op for another epoch and for a pod that does not drain. On a cluster a queue that is
        silent hears of this by a repeat only.
        """
        ...

    async def unregister(self, lease: PodLease) -> None:
        """Forget the pod and void its grants. No-op for another epoch. Wakes the coordinator."""
        ...

    async def pods(self) -> list[PodState]:
        """Return every pod not yet dropped, oldest first, also those whose lease ran out."""
        ...

    async def routes(self) -> dict[str, str | None]:
        """Return every kind that a pod publishes, and the queue named for the kind. None: no queue.

        Where pods differ, a pod with a live lease goes before one without, and of those the pod
        that started last counts.
        """
        ...

    async def publish_kinds(self, documents: Mapping[str, str]) -> None:
        """Store what a pod says of its kinds, beside what others say of other kinds.

        A document of before is replaced. Documents that were last published ``KINDS_KEPT`` ago are
        removed.
        """
        ...

    async def published_kinds(self, names: Sequence[str] | None = None) -> list[PublishedKind]:
        """Return documents of kinds, by kind, also where no pod knows the kind any more.

        :param names: None: all. Unknown names are left out
        """
        ...

    async def workers(self, host_id: HostId | None = None) -> list[WorkerState]:
        """Return workers whose start is known, of one pod or all."""
        ...

    async def drop_dead_pods(self, dead_for: timedelta, limit: int) -> list[HostId]:
        """Forget pods whose lease ran out at least ``dead_for`` ago and that hold no claim."""
        ...

    async def bring_back_leases(self) -> SetBack:
        """Shorten leases and beats that begin later than now, after the clock has been set back.

        Such leases and beats count from now. Pods' leases, beats of claims and the leader's lease
        keep their length. So none ends sooner than a whole lease from now, live pods renew theirs
        before, and none is trusted for longer than a lease that begins now. A stamp up to a second
        ahead may stay. A cool-down becomes no longer than the longest of its queue. Must never wait
        for a caller's open transaction. Not one atomic step: after an error some may have been
        shortened.
        """
        ...

    async def allocations(self) -> list[Allocation]:
        """Return every queue that a pod with a live lease declares, or that has jobs waiting, by
        name.

        Grants of a pod whose lease ran out do not appear: they are void.
        """
        ...

    async def live_pods(self) -> list[Pod]:
        """Return every pod with a live lease as registered, draining ones too, in any order.

        The published kinds and queues are left out, see :meth:`routes`.
        """
        ...

    async def due_kinds(self, names: Sequence[str]) -> dict[str, dict[str, int]]:
        """Count the due jobs of each kind, per queue among ``names`` that has any.

        Of each queue a store must look at the first thousand due jobs in the order of claims, and
        may stop there: a longer backlog costs no more. Held jobs are not due. A queue that is
        paused or cools down is left out, because more slots would not help.
        """
        ...

    async def allocate(self, changes: Sequence[AllocationChange]) -> list[bool]:
        """Write targets and raise grants.

        Per item False, and nothing written, when the version has moved on, a pod's lease ran out
        since, a grant would sink, or the sum of grants would exceed the queue's ``max_workers`` as
        stored now. An exception to the last: grants that do not rise may exceed a lowered maximum.

        Void grants are removed in the same step. A change that would write what is there writes
        nothing and is True. Wakes beats when anything was written.
        """
        ...

    async def lower_grants(self, lease: PodLease, grants: Mapping[str, int]) -> None:
        """Give slots of a pod back: each grant becomes at most the given number.

        Never raises a grant. Wakes the coordinator when any sank.
        """
        ...

    async def record_gauges(self, lease: PodLease, minute: datetime, gauges: PodGauges) -> None:
        """Store the pod's own measurements of one minute."""
        ...

    async def gauges(self, since: datetime, until: datetime) -> list[PodMinute]:
        """Return pod minutes in [``since``, ``until``), oldest first.

        Where minutes are no longer kept come hours, each with the pod's last measurement of the
        hour.
        """
        ...
