"""Equal shares: how the workers of queues are divided over pods.

All queues are divided together, because only then can the remainders (what is left of
``max_workers`` after an equal division) be spread evenly too: 50 queues of one worker over 10 pods
are 50 remainders, and any hash of the queue name alone would give some pod none and another nine.

What departs from equal shares, and how grants follow: :mod:`forge_jobs.policy.slots.plan`.
"""

import hashlib
from collections.abc import Mapping, Sequence

from forge_jobs.model.ids import HostId

Shares = dict[HostId, int]

_MIX = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def equal_shares(
    queues: Mapping[str, tuple[int, Sequence[HostId]]],
    current: Mapping[str, Mapping[HostId, int]] | None = None,
) -> dict[str, Shares]:
    """Split the ``max_workers`` of each queue over its pods, remainders evenly over all pods.

    The shares of one queue differ by at most one, and do not depend on the order of its pods.
    Where all pods declare all queues, no two pods differ by more than one remainder. Remainders
    stay where ``current`` has them as far as that allows, so a pod or queue that comes or goes
    moves only what it must. A hash decides the rest. A result passed back in as
    ``current`` comes out unchanged. The work grows with the number of shares, not faster.

    :param queues: name -> (max_workers, pods that may run jobs of the queue)
    :param current: name -> shares as they are
    """
    seeds = {pod: _seed(pod) for pod in set().union(*(pods for _, pods in queues.values()))}
    held = dict.fromkeys(sorted(seeds), 0)
    splits = [_Split(name, *queues[name], seeds=seeds) for name in sorted(queues)]
    for split in splits:
        split.keep(current.get(split.queue, {}) if current else {}, held)
    for split in splits:
        split.fill(held)
    _level([split for split in splits if split.favoured], held)
    return {split.queue: split.shares() for split in splits}


class _Split:
    """The share of a queue per pod, and which pods hold one of its remainders."""

    def __init__(
        self, queue: str, max_workers: int, pods: Sequence[HostId], *, seeds: Mapping[HostId, int]
    ) -> None:
        self.queue = queue
        self.members = sorted(set(pods))
        self.base, self.remainder = divmod(max(max_workers, 0), max(len(self.members), 1))
        self.favoured: set[HostId] = set()
        self._seed = _seed(queue) if self.remainder else 0
        self._seeds = seeds

    def keep(self, current: Mapping[HostId, int], held: dict[HostId, int]) -> None:
        """Leave remainders with the pods that have them."""
        if not self.remainder or not current:
            return
        holders = [pod for pod in self.members if current.get(pod, 0) > self.base]
        if len(holders) > self.remainder:
            holders = sorted(holders, key=self._rank)[: self.remainder]
        self._give(holders, held)

    def fill(self, held: dict[HostId, int]) -> None:
        """Give the remainders that no pod holds to the pods with the fewest."""
        missing = self.remainder - len(self.favoured)
        if missing <= 0:
            return
        favoured, rank = self.favoured, self._rank
        others = [(held[pod], rank(pod), pod) for pod in self.members if pod not in favoured]
        self._give([pod for _, _, pod in sorted(others)[:missing]], held)

    def shares(self) -> Shares:
        shares = dict.fromkeys(self.members, self.base)
        for pod in self.favoured:
            shares[pod] += 1
        return shares

    def _give(self, pods: Sequence[HostId], held: dict[HostId, int]) -> None:
        self.favoured.update(pods)
        for pod in pods:
            held[pod] += 1

    def _rank(self, pod: HostId) -> int:
        # A hash function for each of 40,000 pairs would take half of the time of a plan.
        return ((self._seeds[pod] ^ self._seed) * _MIX) & _MASK


def _level(splits: Sequence[_Split], held: dict[HostId, int]) -> None:
    """Move remainders from fuller to emptier pods until no move makes two pods more equal.

    A set of queues is an integer with a bit for each of them: whether any queue lets a remainder
    go from one pod to another is one operation, however many queues there are.
    """
    holds, lacks = dict.fromkeys(held, 0), dict.fromkeys(held, 0)
    for number, split in enumerate(splits):
        bit = 1 << number
        for pod in split.members:
            if pod in split.favoured:
                holds[pod] |= bit
            else:
                lacks[pod] |= bit
    # The widest gaps first: closing a narrow one beside them would have to be undone later.
    # Each move lowers the sum of squares of what the pods hold, so this ends.
    while (found := _widest(holds, lacks, held)) is not None:
        fullest, emptiest = found
        movable = holds[fullest] & lacks[emptiest]
        bit = movable & -movable
        split = splits[bit.bit_length() - 1]
        split.favoured.symmetric_difference_update(found)
        for pod, change in ((fullest, -1), (emptiest, 1)):
            holds[pod] ^= bit
            lacks[pod] ^= bit
            held[pod] += change


def _widest(
    holds: Mapping[HostId, int], lacks: Mapping[HostId, int], held: Mapping[HostId, int]
) -> tuple[HostId, HostId] | None:
    """The two pods that differ most, by two at least, of those with a queue to move between."""
    upwards = sorted(held, key=held.__getitem__)
    found, widest = None, 1
    for fullest in reversed(upwards):
        for emptiest in upwards:
            if held[fullest] - held[emptiest] <= widest:
                break
            if holds[fullest] & lacks[emptiest]:
                found, widest = (fullest, emptiest), held[fullest] - held[emptiest]
                break
    return found


def _seed(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
