"""Pods that are only what they tell a store, and the problems that a reader then sees."""

from datetime import datetime, timedelta

from forge_jobs.clock import ManualClock
from forge_jobs.model.events import EventKind, PodNote, TimelineEvent
from forge_jobs.model.ids import HostId, new_host_id
from forge_jobs.model.processes import AllocationChange, PodLease, Slots
from forge_jobs.model.queues import QueueChange
from forge_jobs.operating.snapshots.reading import problems
from forge_jobs.policy.judgement.problems.problem import Code, Problem
from forge_jobs.storage.protocols import Storage
from tests.support.factories import KIND, QUEUE, a_pod

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)


class Fleet:
    """Pods that tell the store what real ones tell, at moments that the test chooses."""

    def __init__(self, storage: Storage, clock: ManualClock) -> None:
        self.storage, self.clock = storage, clock

    async def start(
        self,
        *queues: str,
        label: str = "",
        slots: int = 1,
        lease_for: timedelta = 24 * HOUR,
        kinds: tuple[str, ...] = (KIND,),
    ) -> PodLease:
        """Start a pod that has ``slots`` of each queue, and leads if none does."""
        served = queues or (QUEUE,)
        pod = a_pod(host_id=new_host_id(), queues=served, kinds=kinds, label=label, version="7a11")
        lease = await self.storage.procs.register(pod, lease_for)
        note = PodNote(version=pod.version, label=pod.label, queues=pod.queues)
        await self.tell(EventKind.POD_STARTED, str(note), lease.host_id)
        for queue in served if slots else ():
            await self.storage.config.set_queue(queue, QueueChange(max_workers=slots))
            [allocation] = [
                each for each in await self.storage.procs.allocations() if each.queue == queue
            ]
            given = {lease.host_id: Slots(slots, slots)}
            change = AllocationChange(queue=queue, version=allocation.version, slots=given)
            # Refused where another pod has the slots.
            await self.storage.procs.allocate([change])
        await self.storage.cron.lead(lease.host_id, 24 * HOUR)
        return lease

    async def stop(self, lease: PodLease, *queues: str) -> None:
        """Let a pod leave as it should."""
        note = PodNote(version="7a11", queues=queues or (QUEUE,))
        await self.tell(EventKind.POD_STOPPED, str(note), lease.host_id)
        await self.storage.procs.unregister(lease)

    async def tell(
        self, kind: EventKind, detail: str = "", host_id: HostId | str = "", queue: str = ""
    ) -> None:
        """Store an event of now."""
        event = TimelineEvent(
            at=self.clock.now(), kind=kind, detail=detail, host_id=host_id, queue=queue
        )
        assert await self.storage.jobs.append_events([event]) == []

    async def all(self) -> list[Problem]:
        """Return what is wrong now."""
        return [*await problems(self.storage)]

    async def codes(self) -> list[Code]:
        """Return what is wrong now."""
        return [each.code for each in await problems(self.storage)]

    async def the_problem(self, code: Code, since: datetime) -> Problem:
        """Return the problem, which must be among the first three and have begun at ``since``."""
        found = await problems(self.storage)
        [problem] = [each for each in found[:3] if each.code is code]
        assert problem.since == since
        return problem
