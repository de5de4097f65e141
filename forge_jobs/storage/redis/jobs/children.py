"""Edges between jobs, and how a parent's end reaches its children.

A job is stored before its links, so that a reader of a link finds the job. On one server both are
one step. In a cluster a call that dies in between leaves jobs that no parent knows. A repeat of the
call links them, or the sweep.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec

from forge_jobs.errors import NotFound, PartlyUnavailable
from forge_jobs.model.edges import EdgeState, Tally
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus, NewJob
from forge_jobs.model.transitions import Delivery, Handover
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.queues import in_all_queues
from forge_jobs.storage.redis.base.scripts import item_of
from forge_jobs.storage.redis.base.steps import steps_of
from forge_jobs.storage.redis.jobs.filters import portions
from forge_jobs.storage.redis.jobs.unique_keys import WRITING
from forge_jobs.storage.redis.keys import queue_of, queue_tag
from forge_jobs.storage.redis.locators.locators import by_base, locate, locate_some

_EDGES_AT_ONCE = 100
_DELIVERIES_AT_ONCE = 250
PARENTS_AT_ONCE = 300
"""How many parents one step links at most."""
MOST_PARENTS_OF_A_STEP = 500
"""A call that names more parents stores its jobs first, and links them in steps of their own."""
_LOCATED_AT_ONCE = 1_000


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``handovers.lua``.

    :param seq: of the parent's record in its queue
    :param at: when the parent ended
    :param edge: the tag of the child's queue, and the failure policy
    """

    seq: str
    at: int
    parent: JobId
    status: JobStatus
    child: JobId
    edge: str


class _Delivered(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``deliver.lua``."""

    was_applied: bool
    word: str
    since: int


async def handovers(db: Database, limit: int) -> list[Handover]:
    """See ``JobStore.handovers``."""
    answers = await in_all_queues(db, "handovers", limit, list[_Stored])
    found = sorted(
        ((queue, handover) for queue, listed in answers.items() for handover in listed),
        key=lambda each: (each[1].at, each[0], int(each[1].seq), each[1].child),
    )
    return [_handover(queue, handover) for queue, handover in found[:limit]]


async def parents_of(db: Database, children: Sequence[JobId]) -> dict[JobId, tuple[JobId, ...]]:
    """See ``JobStore.parents``."""
    found: dict[JobId, tuple[JobId, ...]] = {}
    unknown: set[JobId] = set()
    for portion in portions(children, _EDGES_AT_ONCE):
        queues, unlocated = await locate_some(db, portion)
        located = by_base(db, queues)
        answers, silent = await db.run_some("parents_of", located, list[list[JobId]])
        unknown |= unlocated.union(*(located[base] for base in silent))
        for base, listed in answers.items():
            for child, parents in zip(located[base], listed, strict=True):
                if parents:
                    found[child] = tuple(sorted(parents))
    if unknown:
        text = f"the parents of {len(unknown)} jobs are not known: their server does not answer"
        raise PartlyUnavailable(text, found, unknown)
    return found


async def tallies_of(db: Database, children: Sequence[JobId]) -> dict[JobId, Tally]:
    """See ``KinStore.tallies``."""
    queues, unknown = await locate_some(db, children)
    located = by_base(db, queues)
    answers, silent = await db.run_some("tallies", located, list[list[int]])
    found = {
        child: Tally(*counts)
        for base, listed in answers.items()
        for child, counts in zip(located[base], listed, strict=True)
        if counts
    }
    if unknown := unknown.union(*(located[base] for base in silent)):
        text = f"the parents of {len(unknown)} jobs are not known: their server does not answer"
        raise PartlyUnavailable(text, found, unknown)
    return found


async def deliver(db: Database, deliveries: Sequence[Delivery]) -> int:
    """See ``JobStore.deliver``. Each step of a script tells few children, so that it is short."""
    return sum([await _deliver(db, some) for some in portions(deliveries, _DELIVERIES_AT_ONCE)])


async def _deliver(db: Database, deliveries: Sequence[Delivery]) -> int:
    requests: defaultdict[str, list[tuple[object, ...]]] = defaultdict(list)
    of_base: defaultdict[str, list[Handover]] = defaultdict(list)
    for delivery in await _standing(db, deliveries):
        handover = delivery.handover
        base = db.keys.queue(handover.queue)
        seq = int(handover.id.split()[1])
        requests[base].append(
            item_of(
                "deliver",
                "each",
                id=handover.child_id,
                parent=handover.parent_id,
                action=delivery.action,
                seq=seq,
            )
        )
        of_base[base].append(handover)
    # Handovers to children that do not answer stay.
    answers, _ = await db.run_some("deliver", requests, list[_Delivered])
    done = [
        (handover, delivered)
        for base, outcomes in answers.items()
        for handover, delivered in zip(of_base[base], outcomes, strict=True)
    ]
    await _forget(db, done)
    return sum(delivered.was_applied for _, delivered in done)


async def _standing(db: Database, deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Return the handovers still to be delivered: a parent may have been requeued meanwhile."""
    of_base: defaultdict[str, list[Delivery]] = defaultdict(list)
    for delivery in deliveries:
        of_base[_parents_base(db, delivery.handover)].append(delivery)
    requests = {
        base: [
            item_of("handovers_stand", "each", seq=each.id.split()[1], child=each.child_id)
            for each in (one.handover for one in listed)
        ]
        for base, listed in of_base.items()
    }
    answers, _ = await db.run_some("handovers_stand", requests, list[bool])
    standing = {
        each.handover.id
        for base, stand in answers.items()
        for each, stands in zip(of_base[base], stand, strict=True)
        if stands
    }
    # In the order of the call, which is that of the ends of parents in several queues.
    return [each for each in deliveries if each.handover.id in standing]


async def _forget(db: Database, done: Sequence[tuple[Handover, _Delivered]]) -> None:
    requests: defaultdict[str, list[tuple[object, ...]]] = defaultdict(list)
    for handover, delivered in done:
        _, seq, ended, _ = handover.id.split()
        requests[_parents_base(db, handover)].append(
            item_of(
                "forget_handovers",
                "each",
                seq=seq,
                parent=handover.parent_id,
                status=handover.parent_status.value,
                child=handover.child_id,
                ended=int(ended),
                word=delivered.word,
                since=delivered.since,
            )
        )
    await db.run_some("forget_handovers", requests, bool)


def _parents_base(db: Database, handover: Handover) -> str:
    return db.keys.queue(queue_of(handover.id.split()[0]))


def _handover(queue: str, handover: _Stored) -> Handover:
    tag, on_failure = handover.edge.split()
    return Handover(
        id=f"{queue_tag(queue)} {handover.seq} {handover.at} {handover.child}",
        queue=queue_of(tag),
        child_id=handover.child,
        parent_id=handover.parent,
        parent_status=handover.status,
        on_failure=on_failure,
    )


Otherwise = Literal["missing", "told", "left"]
"""Deal with a parent that is not there: refuse the call, tell the children as if the parent had
been removed before its end, or do nothing."""

Link = tuple[object, ...]

Words = dict[int, tuple[str, str]]
"""The outcome of each request of the call, and the job that the request stands for."""


class Edge(msgspec.Struct, frozen=True):
    """An edge as the hash ``waits:<id>`` of its child holds it. See ``edges.lua``.

    :param seq: the number of the newest end that counted, in the parent's queue
    """

    state: EdgeState
    on_failure: str
    seq: int = 0

    def stored(self) -> str:
        """Return the text of the edge."""
        return f"{self.state} {self.on_failure} {self.seq}"

    @classmethod
    def read(cls, text: str) -> "Edge":
        """The edge of a text."""
        state, on_failure, seq = text.split()
        return cls(EdgeState(state), on_failure, int(seq))


class Child(NamedTuple):
    """A job that is stored already, in place of a request."""

    id: JobId
    queue: str


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

    def add(
        self, child: NewJob | Child, parent: JobId, on_failure: str, queue: str | None = None
    ) -> None:
        """Let ``child`` wait for ``parent``. Of two edges between them the last counts.

        :param queue: the parent's, when the same call stores the parent
        """
        # Only the stored record says whether a job that is stored already is in a sequence.
        is_member = isinstance(child, Child) or child.sequence is not None
        link = f"{queue_tag(child.queue)} {on_failure}{' ?' if is_member else ''}"
        self.links.setdefault(parent, {})[child.id] = link
        self._of_child.setdefault(child.id, {})[parent] = on_failure
        if queue is not None:
            self.queues[parent] = queue
            self.coming.add(parent)

    async def locate(self, db: Database) -> None:
        """Find the queues of the parents that are stored already.

        :raises NotFound: one is not
        """
        wanted = [parent for parent in self.links if parent not in self.queues]
        for some in portions(wanted, _LOCATED_AT_ONCE):
            self.queues |= await locate(db, some)
        for parent in self.links:
            if parent not in self.queues:
                raise missing(parent)

    async def locate_some(self, db: Database, late: Mapping[JobId, str]) -> None:
        """Find the queues of the parents that are still there.

        :param late: the queues of jobs whose locators are written later
        """
        wanted = [parent for parent in self.links if parent not in late]
        self.queues = dict(late)
        for some in portions(wanted, _LOCATED_AT_ONCE):
            self.queues |= await locate(db, some)

    def texts_of(self, child: JobId) -> list[str]:
        """Return the parents of the child, and the edges to them, in turn."""
        return [
            text
            for parent, on_failure in self._of_child.get(child, {}).items()
            for text in (parent, Edge(EdgeState.OPEN, on_failure).stored())
        ]

    def by_base(self, db: Database, otherwise: Otherwise) -> dict[str, list[Link]]:
        """The links, as ``linking.lua`` takes them, by the base of the parent's queue.

        :param otherwise: what becomes of a link whose parent is not there
        """
        found: defaultdict[str, list[Link]] = defaultdict(list)
        for parent, children in self.links.items():
            if parent in self.queues:
                what = "told" if parent in self.coming and otherwise == "missing" else otherwise
                base = db.keys.queue(self.queues[parent])
                found[base].append(
                    item_of(
                        "link",
                        "link",
                        parent=parent,
                        otherwise=what,
                        edges=list(children.items()),
                    )
                )
        return dict(found)

    async def missing_in(self, db: Database) -> list[tuple[str, str]]:
        """Return the parents that must be there and are not."""
        found: list[tuple[str, str]] = []
        for step in steps_of(self.by_base(db, "missing"), _LOCATED_AT_ONCE):
            answers = await db.run("parents", step, list[tuple[str, str]])
            found += [pair for pairs in answers.values() for pair in pairs]
        return found

    async def write(self, db: Database, otherwise: Otherwise) -> None:
        """Write the links, few in each step."""
        for step in steps_of(self.by_base(db, otherwise), PARENTS_AT_ONCE):
            await db.run("link", step, bool)

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


class Plan:
    """Take note of what the first step has found out.

    :param words: per request. None: there was no such step
    :param links: what the same step links, by base
    """

    def __init__(
        self, words: Words | None, edges: Edges, links: Mapping[str, Sequence[Link]]
    ) -> None:
        self.words = words
        self.edges = edges
        self.links = links

    def writing(self, indexes: Sequence[int]) -> Sequence[int]:
        """The requests that may write: also one that is dropped may end a job that has expired."""
        words = self.words
        return indexes if words is None else [i for i in indexes if words[i][0] in WRITING]

    def expected(self, indexes: Sequence[int]) -> "list[tuple[str, str]] | bool":
        """Return the words that these requests must get again, or nothing is stored."""
        return self.words is not None and [self.words[i] for i in indexes]


NO_PLAN = Plan(None, Edges(), {})


def have_many_parents(jobs: Iterable[NewJob]) -> bool:
    """Return whether the jobs and their links are too many for one step."""
    return len({after.job_id for job in jobs for after in job.after}) > MOST_PARENTS_OF_A_STEP


def missing(parent: str) -> NotFound:
    """The refusal of a job whose parent does not exist."""
    problem = f"job {parent}, named in after, does not exist"
    return NotFound(f"{problem}; it was never stored, or its retention is over")
