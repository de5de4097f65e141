"""The limit of handlers that run at once in a process, over all its queues.

Mostly the coordinator keeps the limit: a pod is granted no more slots than that. But a pod with
more queues than its limit has a slot of each queue, and a coordinator of an older version may not
know of the limit. Then the queues take turns here.
"""

from collections.abc import Iterable
from typing import Protocol


class Member(Protocol):
    """A queue of the pod. See ``WorkerPool``."""

    grant: int
    target: int

    @property
    def running(self) -> int: ...

    @property
    def held_ahead(self) -> int: ...

    @property
    def waits_for_room(self) -> bool:
        """Return whether the queue would claim at once, given room."""
        ...

    def hint(self) -> None:
        """Look for work again."""
        ...


class Capacity:
    """Room for ``most`` handlers. Queues that find none get some in the order of asking."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._members: tuple[Member, ...] = ()
        self._asked: dict[Member, int] = {}
        self._waiting: dict[Member, None] = {}

    def share(self, members: Iterable[Member]) -> None:
        """Share the room among these queues."""
        self._members = tuple(members)

    def room(self, member: Member, wanted: int, free: int) -> int:
        """Return how many of ``wanted`` claims may be asked for, until :meth:`answered`.

        :param free: workers without a job. Where the slots of all queues exceed the limit, nothing
            is claimed ahead of them: such a claim would keep another queue out
        """
        if sum(_usable(each) for each in self._members) > self._most:
            wanted = self._turn_of(member, min(wanted, free))
        if wanted:
            self._asked[member] = wanted
        return wanted

    def answered(self, member: Member) -> None:
        """Note that the store has answered: the claims are now held, or were not there."""
        self._asked.pop(member, None)
        self.has_room()

    def has_room(self) -> None:
        """Let the waiting queues ask again, because some claims have ended."""
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
    """Return how many handlers the slots allow, or still run beyond them."""
    return max(min(member.grant, member.target), member.running)
