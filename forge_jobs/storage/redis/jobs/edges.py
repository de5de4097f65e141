"""Edges of new jobs, and the links to their parents, which tell them of their ends.

A job is stored before it is linked, so that who meets the link finds the job. On one server both
are one step. In a cluster a call that dies in between leaves jobs which nobody would tell: a repeat
of the call links them, or the sweep.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from forge_jobs.errors import NotFound
from forge_jobs.model.edges import EdgeState
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import NewJob
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.keys import queue_tag
from forge_jobs.storage.redis.locators.locators import locate

Otherwise = Literal["missing", "told", "left"]
"""Of a parent that is not there: refuse the call, tell the children as if it had been removed
before its end, or do nothing."""

Link = tuple[JobId, Otherwise, list[tuple[JobId, str]]]


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

    :param links: parent -> child -> the child's queue tag and what a failure means to it
    :param queues: of the parents
    :param coming: the parents that the same call stores
    """

    links: dict[JobId, dict[JobId, str]] = field(default_factory=dict)
    queues: dict[JobId, str] = field(default_factory=dict)
    coming: set[JobId] = field(default_factory=set)
    _of_child: dict[JobId, dict[JobId, str]] = field(default_factory=dict)

    def add(self, child: NewJob, parent: JobId, on_failure: str, queue: str | None = None) -> None:
        """``child`` waits for ``parent``; of two edges between them the last counts.

        :param queue: the parent's, when the same call stores it
        """
        self.links.setdefault(parent, {})[child.id] = f"{queue_tag(child.queue)} {on_failure}"
        self._of_child.setdefault(child.id, {})[parent] = on_failure
        if queue is not None:
            self.queues[parent] = queue
            self.coming.add(parent)

    async def locate(self, db: Database) -> None:
        """Find the queues of the parents that are stored already.

        :raises NotFound: one is not
        """
        self.queues |= await locate(db, self.links.keys() - self.queues.keys())
        for parent in self.links:
            if parent not in self.queues:
                raise missing(parent)

    def texts_of(self, child: JobId) -> list[str]:
        """What the child waits for, and its edges, in turn."""
        return [
            text
            for parent, on_failure in self._of_child.get(child, {}).items()
            for text in (parent, Edge(EdgeState.OPEN, on_failure).stored())
        ]

    def by_base(self, db: Database, otherwise: Otherwise) -> dict[str, list[Link]]:
        """The links, as ``lua/lib/linking.lua`` takes them, by the base of the parent's queue.

        :param otherwise: what becomes of a link whose parent is not there
        """
        found: defaultdict[str, list[Link]] = defaultdict(list)
        for parent, children in self.links.items():
            if parent in self.queues:
                what = "told" if parent in self.coming and otherwise == "missing" else otherwise
                base = db.keys.queue(self.queues[parent])
                found[base].append((parent, what, list(children.items())))
        return dict(found)

    def depths(self, jobs: Iterable[NewJob]) -> dict[JobId, int]:
        """How many steps each job comes after the first ones, when each step stores jobs whose
        parents are stored already. ``jobs`` has parents first."""
        depths: dict[JobId, int] = {}
        for job in jobs:
            before = [
                depths[parent] + (self.queues[parent] != job.queue)
                for parent in self._of_child.get(job.id, {})
                if parent in depths
            ]
            depths[job.id] = max(before, default=0)
        return depths


def missing(parent: str) -> NotFound:
    """The refusal of a job whose parent does not exist."""
    return NotFound(f"job {parent}, named in after, does not exist")
