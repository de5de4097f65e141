"""Reads of pods, of the store's health, and of the actor."""

from typing import Any

from msgspec import structs

from forge_jobs.operating.access import Right
from forge_jobs.operating.base import Calls
from forge_jobs.operating.documents import widened
from forge_jobs.operating.health.documents import Health, Me, Pods, PodView, Problems
from forge_jobs.operating.health.examining import examine, is_well
from forge_jobs.operating.health.stores import StoreView, store_view
from forge_jobs.operating.snapshots.reading import problems as read_problems
from forge_jobs.operating.snapshots.shared import Reader
from forge_jobs.policy.judgement.problems.problem import Severity


class StoreCalls(Calls):
    """A part of the methods of an operator. See ``Operator``."""

    async def list_pods(self) -> Pods:
        """All pods with their slots per queue."""
        self.actor.need(Right.READ)
        pods = await self.storage.procs.pods()
        return Pods(tuple(self._open(widened(PodView, pod, standing=pod.standing)) for pod in pods))

    async def doctor(self) -> Health:
        """Examine the store: reachable, durable, led, served, and each queue on its way.

        A check that the store does not answer is a finding, not an error.
        """
        self.actor.need(Right.READ)
        self.actor.need(Right.QUEUES)
        findings = await examine(Reader(self.storage))
        return Health(ok=is_well(findings), findings=tuple(findings))

    async def store(self) -> StoreView:
        """The store: durability, size, memory, connections, and the calls of pods by name.

        A part that the user of this process may not ask for is None, not an error.

        :raises Unavailable: the store is silent
        """
        self.actor.need(Right.READ)
        self.actor.need(Right.QUEUES)
        report = await self.storage.report()
        return store_view(self.storage, report, await self.storage.procs.pods())

    async def problems(self) -> Problems:
        """Everything that is wrong now, the worst first, and what is safe to do.

        :raises Unavailable: the store is silent, or the part with pods and schedules
        """
        self.actor.need(Right.READ)
        self.actor.need(Right.QUEUES)
        found = await read_problems(self.storage)
        ok = all(problem.severity is not Severity.CRITICAL for problem in found)
        return Problems(ok=ok, problems=found)

    async def me(self) -> Me:
        """The actor, and the rights of the actor. Needs no right."""
        access = self.actor.access
        return Me(
            name=self.actor.name,
            surface=self.actor.surface,
            read=access.read,
            actions=tuple(sorted(access.actions)),
            queues=None if access.queues is None else tuple(sorted(access.queues)),
            payloads=access.payloads,
        )

    def _open(self, pod: PodView) -> PodView:
        """The pod, of the queues that are open to the actor."""
        if self.actor.access.queues is None:
            return pod
        sees = self.actor.sees
        described: Any = structs.replace(
            pod.pod,
            kinds=(),
            queues=tuple(name for name in pod.pod.queues if sees(name)),
            routes={kind: name for kind, name in pod.pod.routes.items() if sees(name)},
        )
        return structs.replace(
            pod,
            pod=described,
            slots={name: each for name, each in pod.slots.items() if sees(name)},
            in_progress={name: each for name, each in pod.in_progress.items() if sees(name)},
            gauges=None,
        )
