"""How many handlers a process runs at once, over all its queues.

Mostly the coordinator sees to it: it grants a pod no more slots than its limit. But a pod with more
queues than its limit has a slot of each, and another coordinator may not know of the limit yet.
Then the queues take turns here.
"""

from collections.abc import Iterable
from typing import Protocol


class Member(Protocol):
    """One queue of the pod; see ``Supervisor``."""

    grant: int
    target: int

    @property
    def running(self) -> int: ...

    @property
    def held_ahead(self) -> int: ...

    @property
    def waits_for_room(self) -> bool:
        """It would claim at once, given room."""
        ...

    def hint(self) -> None:
        """Look for work again."""
        ...


class Capacity:
    """Room for ``most`` handlers; queues that find none get it in the order in which they asked."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._members: tuple[Member, ...] = ()
        self._asked: dict[Member, int] = {}
        self._waiting: dict[Member, None] = {}

    def share(self, members: Iterable[Member]) -> None:
        """Room is for these queues together."""
        self._members = tuple(members)

    def room(self, member: Member, wanted: int, free: int) -> int:
        """How many of ``wanted`` claims may be asked for now; :meth:`answered` ends the asking.

        :param free: workers without a job. Where the slots of all queues are more than may be
            used, nothing is claimed ahead of them: such a claim would keep another queue out
        """
        if sum(_usable(each) for each in self._members) > self._most:
            wanted = self._turn_of(member, min(wanted, free))
        if wanted:
            self._asked[member] = wanted
        return wanted

    def answered(self, member: Member) -> None:
        """What was asked for is now held, or was not there."""
        self._asked.pop(member, None)
        self.has_room()

    def has_room(self) -> None:
        """Some claims have ended: who waits may ask again."""
        for member in tuple(self._waiting):
            member.hint()

    def _turn_of(self, member: Member, wanted: int) -> int:
        left = self._most - sum(self._occupied(each) for each in self._members)
        for earlier in self._waiting:
            if earlier is member:
                break
            left -= earlier.waits_for_room
        given = max(0, min(wanted, left))
        if given:
            self._waiting.pop(member, None)
        if given < wanted:
            self._waiting.setdefault(member)
        return given

    def _occupied(self, member: Member) -> int:
        return member.running + member.held_ahead + self._asked.get(member, 0)


def _usable(member: Member) -> int:
    """Handlers that the slots allow, or that still run beyond them."""
    return max(min(member.grant, member.target), member.running)
