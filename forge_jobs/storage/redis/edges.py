"""Edges of new jobs: what they wait for is told to their parents before they are stored."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from forge_jobs.errors import NotFound
from forge_jobs.model.edges import EdgeState
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import NewJob
from forge_jobs.storage.redis.database import Database
from forge_jobs.storage.redis.keys import queue_tag
from forge_jobs.storage.redis.locators import locate


class Edge(msgspec.Struct, frozen=True):
    """An edge as the hash ``waits:<id>`` of its child holds it; see ``lua/lib/edges.lua``.

    :param seq: the number of the newest news that counted, in the parent's queue
    """

    state: EdgeState
    on_failure: str
    seq: int = 0

    def stored(self) -> str:
        """Its text."""
        return f"{self.state} {self.on_failure} {self.seq}"

    @classmethod
    def read(cls, text: str) -> "Edge":
        """The edge of a text."""
        state, on_failure, seq = text.split()
        return cls(EdgeState(state), on_failure, int(seq))


@dataclass
class Edges:
    """The edges of one call.

    :param parents: parent -> child -> the child's queue tag and what a failure means to it
    :param queues: of the parents that the same call stores
    """

    parents: dict[JobId, dict[JobId, str]] = field(default_factory=dict)
    queues: dict[JobId, str] = field(default_factory=dict)
    _of_child: dict[JobId, dict[JobId, str]] = field(default_factory=dict)
    _before: dict[str, set[str]] = field(default_factory=dict)

    def add(self, child: NewJob, parent: JobId, on_failure: str, queue: str | None) -> None:
        """``child`` waits for ``parent``; of two edges between them the last counts.

        :param queue: the parent's, when the same call stores it
        """
        self.parents.setdefault(parent, {})[child.id] = f"{queue_tag(child.queue)} {on_failure}"
        self._of_child.setdefault(child.id, {})[parent] = on_failure
        if queue is not None:
            self.queues[parent] = queue
            self._before.setdefault(child.queue, set()).update({queue} - {child.queue})

    def parents_of(self, child: JobId) -> list[str]:
        """What the child waits for, and its edges, in turn."""
        return [
            text
            for parent, on_failure in self._of_child.get(child, {}).items()
            for text in (parent, Edge(EdgeState.OPEN, on_failure).stored())
        ]

    def waves(self, queues: Iterable[str]) -> Iterator[list[str]]:
        """The queues in an order that stores parents first, so that whoever stops in between
        leaves no child that waits for what never came. Queues whose jobs wait for each other's
        come together."""
        left = list(queues)
        while left:
            wave = [name for name in left if self._before.get(name, set()).isdisjoint(left)] or left
            yield wave
            left = [name for name in left if name not in wave]


async def register(db: Database, edges: Edges) -> list[int]:
    """Note the children with their parents. A child that is never stored is of no consequence.

    :returns: when that was, by each server asked; what is noted may be gone a minute later
    :raises NotFound: a parent does not exist
    """
    located = await locate(db, edges.parents.keys() - edges.queues.keys())
    queues = {**located, **edges.queues}
    requests: defaultdict[str, list[object]] = defaultdict(list)
    for parent, children in edges.parents.items():
        if parent not in queues:
            raise _missing(parent)
        entry = (parent, parent in edges.queues, list(children.items()))
        requests[db.keys.queue(queues[parent])].append(entry)
    answers = await db.run("register", requests, tuple[list[JobId], int])
    for missing, _ in answers.values():
        if missing:
            raise _missing(missing[0])
    return [time for _, time in answers.values()]


def _missing(parent: JobId) -> NotFound:
    return NotFound(f"job {parent}, named in after, does not exist")
