"""How the workers of a queue are shared out over pods, and how grants follow.

Two rules with different reach. :func:`equal_shares` looks at one queue. :func:`equal_shares_for`
looks at all of them, because only then can the remainders (what is left of ``max_workers`` after
an equal division) be spread evenly too: 50 queues of one worker over 10 pods are 50 remainders,
and any hash of the queue name alone would give some pod none and another nine.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence

from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import Allocation, AllocationChange, Slots

Shares = dict[HostId, int]


def equal_shares(queue: str, max_workers: int, pods: Sequence[HostId]) -> Shares:
    """``max_workers`` split over ``pods``: the shares differ by at most one.

    Who gets the remainder is decided by a hash of queue and pod, so it differs from queue to
    queue, does not depend on the order of ``pods``, and moves little when one joins or leaves.
    """
    members = sorted(set(pods))
    if not members:
        return {}
    base, remainder = divmod(max(max_workers, 0), len(members))
    favoured = frozenset(sorted(members, key=lambda pod: _rank(queue, pod))[:remainder])
    return {pod: base + (pod in favoured) for pod in members}


def equal_shares_for(
    queues: Mapping[str, tuple[int, Sequence[HostId]]],
    current: Mapping[str, Mapping[HostId, int]] | None = None,
) -> dict[str, Shares]:
    """:func:`equal_shares` of many queues, with the remainders spread evenly over the pods.

    Where all pods declare all queues, no two pods differ by more than one remainder. Remainders
    stay where ``current`` has them as far as that allows, so a pod or queue that comes or goes
    moves only what it must; the rest is decided by hash. A result passed back in as
    ``current`` comes out unchanged.

    :param queues: name -> (max_workers, pods that may run it)
    :param current: name -> shares as they are
    """
    shares = {name: _Split(name, *queues[name]) for name in sorted(queues)}
    held: dict[HostId, int] = {pod: 0 for split in shares.values() for pod in split.members}
    for name, split in shares.items():
        split.keep(current.get(name, {}) if current else {}, held)
    for split in shares.values():
        split.fill(held)
    _level(shares.values(), held)
    return {name: split.shares() for name, split in shares.items()}


class _Split:
    """One queue's share per pod, and which pods hold one of its remainders."""

    def __init__(self, queue: str, max_workers: int, pods: Sequence[HostId]) -> None:
        self.members = sorted(set(pods))
        self.base, self.remainder = divmod(max(max_workers, 0), max(len(self.members), 1))
        self.favoured: set[HostId] = set()
        self._queue = queue

    def keep(self, current: Mapping[HostId, int], held: dict[HostId, int]) -> None:
        if not self.remainder:
            return
        holders = [pod for pod in self.members if current.get(pod, 0) > self.base]
        for pod in sorted(holders, key=self._rank)[: self.remainder]:
            self._give(pod, held)

    def fill(self, held: dict[HostId, int]) -> None:
        missing = self.remainder - len(self.favoured)
        if missing <= 0:
            return
        others = [pod for pod in self.members if pod not in self.favoured]
        for pod in sorted(others, key=lambda pod: (held[pod], self._rank(pod)))[:missing]:
            self._give(pod, held)

    def gap(self, held: Mapping[HostId, int]) -> int:
        """How many more its fullest holder has than the emptiest pod that holds none of it."""
        others = [held[pod] for pod in self.members if pod not in self.favoured]
        if not others or not self.favoured:
            return 0
        return max(held[pod] for pod in self.favoured) - min(others)

    def relieve(self, held: dict[HostId, int]) -> None:
        """Move one remainder across the gap."""
        others = [pod for pod in self.members if pod not in self.favoured]
        fullest = max(self.favoured, key=lambda pod: (held[pod], self._rank(pod)))
        emptiest = min(others, key=lambda pod: (held[pod], self._rank(pod)))
        self.favoured.discard(fullest)
        held[fullest] -= 1
        self._give(emptiest, held)

    def shares(self) -> Shares:
        return {pod: self.base + (pod in self.favoured) for pod in self.members}

    def _give(self, pod: HostId, held: dict[HostId, int]) -> None:
        self.favoured.add(pod)
        held[pod] += 1

    def _rank(self, pod: HostId) -> bytes:
        return _rank(self._queue, pod)


def _level(splits: Collection[_Split], held: dict[HostId, int]) -> None:
    # The widest gaps first: closing a narrow one beside them would have to be undone later.
    # Each move lowers the sum of squares of what the pods hold, so this ends.
    while (widest := max((split.gap(held) for split in splits), default=0)) >= 2:
        for split in splits:
            while split.gap(held) >= widest:
                split.relieve(held)


def _rank(queue: str, pod: HostId) -> bytes:
    return hashlib.blake2b(f"{queue}\n{pod}".encode(), digest_size=8).digest()


def plan_allocations(allocations: Sequence[Allocation]) -> list[AllocationChange]:
    """The changes a round of the coordinator writes: none for queues that are as they should be.

    Pass the allocations of all queues, so that remainders can be spread (see
    :func:`equal_shares_for`). How a queue's grants follow its targets: :func:`plan_allocation`.
    """
    targets = equal_shares_for(
        {each.queue: (each.max_workers, _takers(each)) for each in allocations},
        {
            each.queue: {pod: slots.target for pod, slots in each.pods.items()}
            for each in allocations
        },
    )
    planned = (plan_allocation(each, targets[each.queue]) for each in allocations)
    return [change for change in planned if change is not None]


def plan_allocation(
    allocation: Allocation, targets: Mapping[HostId, int] | None = None
) -> AllocationChange | None:
    """New targets, and grants raised towards them as far as the maximum leaves room.

    Never lowers a grant: only its pod does, when its surplus handlers have ended. So after a
    change of pods the grants follow in two rounds, one before and one after the pods lowered
    theirs, and their sum exceeds ``max_workers`` only while what was granted before the
    maximum was lowered has not been given back. None when nothing would change.

    :param targets: shares per pod; :func:`equal_shares` when left out. Draining pods get 0
    """
    takers = _takers(allocation)
    if targets is None:
        targets = equal_shares(allocation.queue, allocation.max_workers, takers)
    wanted = {pod: targets.get(pod, 0) if pod in takers else 0 for pod in allocation.pods}
    grants = {pod: slots.grant for pod, slots in allocation.pods.items()}
    free = allocation.max_workers - sum(grants.values())
    # One slot for every pod without any comes first, so that a newcomer works at once although
    # the room for its whole share is still in use elsewhere.
    for at_most in (1, allocation.max_workers):
        for pod in sorted(wanted, key=lambda pod: (grants[pod], pod)):
            raised = min(wanted[pod], at_most, grants[pod] + max(free, 0))
            if raised > grants[pod]:
                free -= raised - grants[pod]
                grants[pod] = raised
    slots = {pod: Slots(wanted[pod], grants[pod]) for pod in allocation.pods}
    if slots == dict(allocation.pods):
        return None
    return AllocationChange(queue=allocation.queue, version=allocation.version, slots=slots)


def _takers(allocation: Allocation) -> list[HostId]:
    return [pod for pod in sorted(allocation.pods) if pod not in allocation.draining]
