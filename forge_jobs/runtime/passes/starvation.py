"""Kinds whose due jobs have no slot on any pod that knows them, as a leader sees them."""

from collections.abc import Mapping
from datetime import timedelta
from itertools import islice
from typing import NamedTuple

from forge_jobs.policy.slots.plan import Needs

ASKED_AT_ONCE = 100
"""Queues that one pass asks about. With more, they take turns."""

KEPT_FOR = timedelta(seconds=60)
"""Slots stay with a kind for this long after its last due job, so that a trickle of jobs does not
wait for slots again and again."""


class _Need(NamedTuple):
    """Slots of a kind.

    :param slots: wanted
    :param due_at: when the kind was last seen to have due jobs
    """

    slots: int
    due_at: float


class StarvedKinds:
    """Remembers from pass to pass which kinds wait for slots, and since when.

    Asks nothing while every kind that is known in a queue has a slot there.

    :param after: a kind whose jobs have been due without any slot for this long gets slots
    """

    def __init__(self, after: timedelta) -> None:
        self._after = after.total_seconds()
        self._unserved: Mapping[str, frozenset[str]] = {}
        self._since: dict[tuple[str, str], float] = {}
        self._needs: dict[str, dict[str, _Need]] = {}
        self._due: dict[str, Mapping[str, int]] = {}
        self._next = 0

    def unserved(self, kinds: Mapping[str, frozenset[str]]) -> None:
        """Take note of the kinds per queue that no slot serves now."""
        self._unserved = kinds
        self._since = {
            (queue, kind): since
            for (queue, kind), since in self._since.items()
            if kind in kinds.get(queue, ())
        }

    def forget(self) -> None:
        """Start anew, because this pod leads no longer."""
        self._unserved = {}
        self._since.clear()
        self._needs.clear()
        self._due.clear()

    def queues(self) -> list[str]:
        """Return the queues whose due jobs matter now. None in a steady fleet of equal pods."""
        every = sorted({*self._unserved, *self._needs})
        if len(every) <= ASKED_AT_ONCE:
            return every
        first = self._next % len(every)
        self._next = first + ASKED_AT_ONCE
        return list(islice(every + every, first, first + ASKED_AT_ONCE))

    def learn(
        self, asked: list[str], due: Mapping[str, Mapping[str, int]], now: float
    ) -> list[tuple[str, str]]:
        """Take note of the due jobs of these queues, and return the kinds that must get slots now.

        Slots that a kind no longer needs are shared out again when the fleet changes, or when the
        leader looks anyway.
        """
        starved: list[tuple[str, str]] = []
        for queue in asked:
            kinds = self._due[queue] = due.get(queue, {})
            self._renew(queue, kinds, now)
            for kind in sorted(self._unserved.get(queue, ())):
                if not kinds.get(kind):
                    self._since.pop((queue, kind), None)
                elif now - self._since.setdefault((queue, kind), now) >= self._after:
                    # The newest need goes first, so that kinds which share one slot take turns.
                    newest = {kind: _Need(kinds[kind], now)}
                    self._needs[queue] = newest | {
                        other: need
                        for other, need in self._needs.get(queue, {}).items()
                        if other != kind
                    }
                    self._since.pop((queue, kind))
                    starved.append((queue, kind))
        return starved

    def needs(self) -> Needs:
        """Return the needs that the plan must meet, the most urgent kind of a queue first.

        Behind the kinds that starved come all others with due jobs: they keep one slot if there are
        enough, and do not starve in turn.
        """
        return {
            queue: {kind: need.slots for kind, need in needs.items()}
            | {kind: 1 for kind in sorted(self._due.get(queue, ())) if kind not in needs}
            for queue, needs in self._needs.items()
        }

    def _renew(self, queue: str, due: Mapping[str, int], now: float) -> None:
        needs = self._needs.pop(queue, {})
        kept = {
            kind: _Need(max(need.slots, due[kind]), now) if due.get(kind) else need
            for kind, need in needs.items()
            if due.get(kind) or now - need.due_at < KEPT_FOR.total_seconds()
        }
        if kept:
            self._needs[queue] = kept
