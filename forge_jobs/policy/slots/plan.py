"""The coordinator's plan: targets per queue and pod, and the grants that follow them.

Targets are equal shares (:mod:`forge_jobs.policy.slots.shares`), with two departures. A pod with
a limit of its own gets no more slots than it can use. And due jobs of a kind get
slots on pods that know the kind, when equal shares leave those pods without any.
"""

from collections.abc import Collection, Mapping, Sequence

from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import Allocation, AllocationChange, Pod, Slots
from forge_jobs.policy.slots.moves import Rooms, fit_into_rooms, serve
from forge_jobs.policy.slots.shares import Shares, equal_shares

_ROUNDS = 8
"""Plans that are made of a plan, at most, in search of one that stays."""

Needs = Mapping[str, Mapping[str, int]]
"""Queue -> kind with due jobs -> slots wanted on pods that know the kind, the most urgent first."""


def plan_allocations(
    allocations: Sequence[Allocation],
    pods: Collection[Pod] = (),
    needs: Needs | None = None,
) -> list[AllocationChange]:
    """The changes a round of the coordinator writes: none for queues that are as they should be.

    Pass the allocations of all queues, so that remainders can be spread (see
    :func:`equal_shares`).

    :param pods: the live pods as they describe themselves, for their kinds and limits
    :param needs: kinds to be served although equal shares would leave them out
    """
    limits = {pod.host_id: pod.concurrency for pod in pods if pod.concurrency is not None}
    targets = _Targets(allocations, limits, pods, needs or {}).settled()
    granted = Rooms(limits, {each.queue: _grants(each) for each in allocations} if limits else {})
    granted.widen(Rooms(limits, targets))
    planned = (_plan_allocation(each, targets[each.queue], granted) for each in allocations)
    return [change for change in planned if change is not None]


def _plan_allocation(
    allocation: Allocation,
    targets: Mapping[HostId, int],
    rooms: Rooms,
) -> AllocationChange | None:
    """New targets, and grants raised towards them as far as the maximum leaves room.

    Never lowers a grant: only its pod does, when its surplus handlers have ended. So after a
    change of pods the grants follow in two rounds, one before and one after the pods lowered
    theirs, and their sum exceeds ``max_workers`` only while what was granted before the
    maximum was lowered has not been given back. None when nothing would change.

    :param targets: shares of the pods that do not drain
    :param rooms: how many more slots each pod can use. Granted slots are subtracted
    """
    wanted = {pod: targets.get(pod, 0) for pod in allocation.pods}
    if all(wanted[pod] == slots.target == slots.grant for pod, slots in allocation.pods.items()):
        return None
    grants = _raised(allocation, wanted, rooms)
    slots = {pod: Slots(wanted[pod], grants[pod]) for pod in allocation.pods}
    if slots == dict(allocation.pods):
        return None
    return AllocationChange(queue=allocation.queue, version=allocation.version, slots=slots)


def takers_of(allocation: Allocation) -> list[HostId]:
    """The pods that may get slots of the queue: those that are not draining."""
    return [pod for pod in sorted(allocation.pods) if pod not in allocation.draining]


def unserved_kinds(
    allocation: Allocation, kinds: Mapping[HostId, frozenset[str]]
) -> frozenset[str]:
    """Kinds that pods of the queue know, while no such pod has or gets a slot.

    Such a kind gets nothing done here until slots move. Empty where all pods know the same kinds
    and one of them has a slot, as in a steady fleet.
    """
    serving: set[frozenset[str]] = set()
    idle: set[frozenset[str]] = set()
    for pod, slots in allocation.pods.items():
        if pod not in allocation.draining:
            known = kinds.get(pod, frozenset())
            (serving if slots.target or slots.grant else idle).add(known)
    # Pods of one release know the same: mostly nothing is left to be looked at kind by kind.
    if not allocation.max_workers or idle <= serving:
        return frozenset()
    return frozenset().union(*idle).difference(*serving)


class _Targets:
    """The targets of all queues, given how they stand."""

    def __init__(
        self,
        allocations: Sequence[Allocation],
        limits: Mapping[HostId, int],
        pods: Collection[Pod],
        needs: Needs,
    ) -> None:
        self._queues = {each.queue: (each.max_workers, takers_of(each)) for each in allocations}
        self._stored = {
            each.queue: {pod: slots.target for pod, slots in each.pods.items()}
            for each in allocations
        }
        self._limits = limits
        self._kinds = {pod.host_id: frozenset(pod.kinds) for pod in pods} if needs else {}
        self._needs = needs

    def settled(self) -> dict[str, Shares]:
        """Targets that stay as they are when they are planned again.

        Equal shares do so at once. Where limits and needs move slots, the plan after this one
        could find another place for a remainder: so plan here until nothing moves. Were
        plans to go round in a circle, whichever stands in the store would stay.
        """
        before, targets = self._stored, self._planned(self._stored)
        if not self._limits and not self._needs:
            return targets
        for _ in range(_ROUNDS):
            if self._same(targets, before) or self._same(targets, self._stored):
                break
            before, targets = targets, self._planned(targets)
        return targets

    def _planned(self, current: Mapping[str, Shares]) -> dict[str, Shares]:
        targets = equal_shares(self._queues, current)
        rooms = Rooms(self._limits, targets)
        fit_into_rooms(targets, current, rooms)
        for queue, kinds in self._needs.items():
            if queue in targets:
                self._serve(kinds, queue, targets[queue], current[queue], rooms)
        return targets

    def _serve(
        self, wanted: Mapping[str, int], queue: str, shares: Shares, current: Shares, rooms: Rooms
    ) -> None:
        wants = [
            (frozenset(pod for pod in shares if kind in self._kinds.get(pod, ())), slots)
            for kind, slots in wanted.items()
        ]
        serve(wants, shares, self._queues[queue][0], current, rooms)

    def _same(self, one: Mapping[str, Shares], other: Mapping[str, Shares]) -> bool:
        return all(
            other[queue].get(pod, 0) == slots
            for queue, shares in one.items()
            for pod, slots in shares.items()
        )


def _raised(allocation: Allocation, wanted: Mapping[HostId, int], rooms: Rooms) -> Shares:
    grants = _grants(allocation)
    free = allocation.max_workers - sum(grants.values())
    # One slot for every pod without any comes first, so that a newcomer works at once although
    # the room for the whole share is still in use elsewhere.
    for at_most in (1, allocation.max_workers):
        goals = {pod: min(wish, at_most) for pod, wish in wanted.items()}
        for has, pod in sorted((grants[pod], pod) for pod in goals if grants[pod] < goals[pod]):
            if free <= 0:
                break
            more = min(goals[pod] - has, free, rooms.of(pod))
            if more > 0:
                free -= more
                grants[pod] += more
                rooms.take(pod, more)
    return grants


def _grants(allocation: Allocation) -> Shares:
    return {pod: slots.grant for pod, slots in allocation.pods.items()}
