"""Slots moved away from equal shares: to pods that have room, and to pods that know a kind."""

from collections.abc import Collection, Mapping, Sequence

from forge_jobs.model.ids import HostId
from forge_jobs.policy.slots.shares import Shares

_ENDLESS = 1 << 60


class Rooms:
    """How many slots more each pod can use, counted down as slots are given.

    :param limits: pods that run only so many handlers at once. All others have room without end
    :param shares: queue -> slots that the pods have already
    """

    def __init__(self, limits: Mapping[HostId, int], shares: Mapping[str, Shares]) -> None:
        self._left = dict(limits)
        for of_queue in shares.values() if limits else ():
            for pod in self._left.keys() & of_queue.keys():
                self._left[pod] -= of_queue[pod]

    def of(self, pod: HostId) -> int:
        """The room of one pod, below zero when the pod has too many slots."""
        return self._left.get(pod, _ENDLESS)

    def take(self, pod: HostId, slots: int) -> None:
        """Note that the pod gets so many slots, or gives them back when below zero."""
        if pod in self._left:
            self._left[pod] -= slots

    def widen(self, targets: "Rooms") -> None:
        """Make room for as many slots beyond the limit as the targets have."""
        for pod in self._left:
            self._left[pod] -= min(targets.of(pod), 0)

    def overfull(self) -> list[HostId]:
        """Pods with more slots than they can use."""
        return sorted(pod for pod, left in self._left.items() if left < 0)


def fit_into_rooms(
    targets: Mapping[str, Shares], current: Mapping[str, Shares], rooms: Rooms
) -> None:
    """Take the slots that a pod cannot use, and give them to pods that can.

    A pod keeps the last slot of a queue, even beyond the pod's limit. The pod then takes turns
    between its queues.

    :param targets: changed in place
    :param current: as the targets stand in the store. Of equal choices the one that stands wins
    """
    for pod in rooms.overfull():
        freed = _shed(pod, targets, current, rooms)
        for queue in freed:
            _hand_out(freed[queue], targets[queue], current[queue], rooms)


def _shed(
    pod: HostId,
    targets: Mapping[str, Shares],
    current: Mapping[str, Shares],
    rooms: Rooms,
) -> dict[str, int]:
    """Lower the largest shares of the pod, to the same level. Answer queue -> slots taken."""
    mine = {queue: shares[pod] for queue, shares in targets.items() if shares.get(pod)}
    limit = sum(mine.values()) + rooms.of(pod)
    level = _level_of(mine.values(), limit)
    kept = {queue: min(slots, level) for queue, slots in mine.items()}
    left = limit - sum(kept.values())
    order = sorted(mine, key=lambda queue: (-current[queue].get(pod, 0), queue))
    if level:
        more = [queue for queue in order if mine[queue] > level][: max(left, 0)]
    else:
        # Fewer than one for each queue of the pod: queues that no other pod could run come first.
        alone = {queue for queue in order if not _others_can(queue, pod, targets, rooms)}
        ranked = [*filter(alone.__contains__, order)]
        ranked += [queue for queue in order if queue not in alone]
        more = ranked[: max(left, len(alone))]
    for queue in more:
        kept[queue] += 1
    freed = {queue: mine[queue] - kept[queue] for queue in mine if kept[queue] < mine[queue]}
    for queue, slots in freed.items():
        targets[queue][pod] -= slots
        rooms.take(pod, -slots)
    return freed


def _level_of(shares: Collection[int], limit: int) -> int:
    """The highest level at which shares, cut down to that level, add up to at most ``limit``."""
    low, high = 0, max(shares, default=0)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(share, middle) for share in shares) <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def _others_can(queue: str, pod: HostId, targets: Mapping[str, Shares], rooms: Rooms) -> bool:
    return any(
        other != pod and (slots > 0 or rooms.of(other) > 0)
        for other, slots in targets[queue].items()
    )


def _hand_out(slots: int, shares: Shares, current: Shares, rooms: Rooms) -> None:
    """Give slots of one queue to the pods with the fewest that have room. The rest to none."""
    while slots > 0:
        able = [pod for pod in shares if rooms.of(pod) > 0]
        if not able:
            return
        pod = min(able, key=lambda pod: (shares[pod], -current.get(pod, 0), pod))
        # In one step as many as keep the pods equal, so that 100,000 slots are few steps.
        given = min(max(1, slots // len(able)), rooms.of(pod))
        shares[pod] += given
        rooms.take(pod, given)
        slots -= given


def serve(
    wants: Sequence[tuple[frozenset[HostId], int]],
    shares: Shares,
    max_workers: int,
    current: Mapping[HostId, int],
    rooms: Rooms,
) -> None:
    """Move slots of one queue to pods that know the kinds of the due jobs.

    First each kind gets one slot, in the order given, as far as there are slots. Then as many as
    the kind wants, as long as every kind keeps one.

    :param wants: per kind the pods that know the kind, and the slots wanted there
    :param shares: changed in place
    :param current: as the targets stand in the store. Of equal choices the one that stands wins
    """
    table = _Table(shares, max_workers, current, rooms, [knowers for knowers, _ in wants])
    for knowers, _ in wants:
        if knowers and not table.slots_of(knowers):
            table.move(knowers, beyond_room=True)
        table.protect(knowers)
    for knowers, wanted in wants:
        while table.slots_of(knowers) < min(wanted, max_workers) and table.move(knowers):
            pass


class _Table:
    """The slots of one queue during moves between the pods."""

    def __init__(
        self,
        shares: Shares,
        max_workers: int,
        current: Mapping[HostId, int],
        rooms: Rooms,
        groups: Sequence[frozenset[HostId]],
    ) -> None:
        self._shares = shares
        self._free = max_workers - sum(shares.values())
        self._current = current
        self._rooms = rooms
        self._groups = groups
        self._protected: list[frozenset[HostId]] = []

    def slots_of(self, pods: Collection[HostId]) -> int:
        return sum(self._shares[pod] for pod in pods)

    def protect(self, pods: frozenset[HostId]) -> None:
        """From here on, leave these pods one slot."""
        if self.slots_of(pods):
            self._protected.append(pods)

    def move(self, pods: frozenset[HostId], *, beyond_room: bool = False) -> bool:
        """Give one of ``pods`` a slot that is free or of another pod. False when there is none."""
        able = [pod for pod in pods if self._rooms.of(pod) > 0] or (pods if beyond_room else ())
        if not able:
            return False
        if self._free > 0:
            self._free -= 1
        elif (giver := self._giver(pods)) is not None:
            self._change(giver, -1)
        else:
            return False
        self._change(min(able, key=lambda pod: (self._shares[pod] - self._stood(pod), pod)), 1)
        return True

    def _giver(self, but: frozenset[HostId]) -> HostId | None:
        givers = [
            pod
            for pod, slots in self._shares.items()
            if slots and pod not in but and not self._is_last(pod, self._protected)
        ]
        return max(
            givers,
            # The pod has lost nothing yet of the slots that it is about to get.
            key=lambda pod: (
                not self._is_last(pod, self._groups),
                self._shares[pod] - self._stood(pod),
                self._shares[pod],
                pod,
            ),
            default=None,
        )

    def _is_last(self, pod: HostId, groups: Sequence[frozenset[HostId]]) -> bool:
        return any(pod in group and self.slots_of(group) == 1 for group in groups)

    def _stood(self, pod: HostId) -> int:
        return self._current.get(pod, 0)

    def _change(self, pod: HostId, slots: int) -> None:
        self._shares[pod] += slots
        self._rooms.take(pod, slots)
