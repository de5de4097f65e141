"""Requeues: jobs that come after others wait again for those that have yet to end.

Parents may be in other slots. So edges and parents are read first, the children are noted with the
parents that they will wait for, and then the jobs are requeued, if their edges are still those that
were read. A child that was noted in vain ignores the parent's end.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from forge_jobs.errors import Unavailable
from forge_jobs.model.actions import ActionStep
from forge_jobs.model.edges import EdgeState, edge_of_requeued
from forge_jobs.model.filters import REFUSED, Refusal
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.unique.keys import key_of
from forge_jobs.storage.redis.actions.steps import packed, read_step
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.queues import queue_names
from forge_jobs.storage.redis.base.requests import VisitFields
from forge_jobs.storage.redis.base.scripts import item_of
from forge_jobs.storage.redis.base.steps import run_in_steps
from forge_jobs.storage.redis.jobs.children import Edge
from forge_jobs.storage.redis.keys import queue_of, queue_tag
from forge_jobs.storage.redis.locators.locators import by_base, locate_some

_TRIES = 10
_AGAIN = "again"

Outcomes = list[tuple[JobId, str]]
_Ids = Mapping[str, Sequence[JobId]]
_AllPlans = Mapping[str, Mapping[JobId, object]]


class _Link(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``links.lua`` about a job.

    :param refusal: why the job is not requeued in any case, False for no such reason
    :param flat: parents and edges in turn
    """

    id: JobId
    refusal: str | bool
    key: str = ""
    flat: tuple[str, ...] = ()

    @property
    def edges(self) -> dict[JobId, Edge]:
        """By parent."""
        pairs = zip(self.flat[::2], self.flat[1::2], strict=True)
        return {JobId(parent): Edge.read(text) for parent, text in pairs}


class _Parent(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``relink.lua`` about a parent. The status is empty when the parent is gone."""

    status: str
    seq: int


async def requeue_step(
    db: Database,
    parts: object,
    meant: tuple[str, Sequence[JobId], object],
    step: ActionStep,
    to: str | None,
) -> tuple[Outcomes, str | None]:
    """Requeue jobs of one queue in one step of an action. Return outcomes, and the new cursor.

    :param meant: base of the queue, ids, and the texts that were seen as scripts take them
    """
    base, ids, seen = meant
    refused = REFUSED["requeue"]
    for _ in range(_TRIES):
        links: Mapping[str, list[_Link]] = {}
        if ids:
            asked = {base: VisitFields(parts, ids, refused, seen=seen)}
            links = await db.run("links", asked, _LINKS)
        plans: _AllPlans = await _Plans(db, links).make() if _any_edge(links) else {}
        request = VisitFields(parts, ids, refused, plans.get(base, {}), packed(step, to), seen)
        answer = await db.run_one("requeue", base, request, Outcomes)
        outcomes, cursor = read_step(step, answer, to)
        if cursor != step.cursor or not ids:
            return outcomes, cursor
    raise Unavailable("gave up: other calls kept changing what the same jobs wait for")


async def requeue(
    db: Database, parts: object, ids: _Ids, seen: Mapping[JobId, str] | None
) -> Outcomes:
    """Requeue jobs. Return the outcome of each.

    :param parts: the filter, as scripts take it
    :param ids: by base of their queue
    :param seen: see :class:`VisitFields`
    """
    done: Outcomes = []
    refused = REFUSED["requeue"]
    for _ in range(_TRIES):
        links = await run_in_steps(
            db,
            "links",
            ids,
            lambda _, each: VisitFields(parts, each, refused, seen=seen_of(seen, each)),
            _LINKS,
        )
        plans: _AllPlans = await _Plans(db, links).make() if _any_edge(links) else {}

        def request(base: str, each: Sequence[JobId], plans: _AllPlans = plans) -> object:
            known = plans.get(base, {})
            mine = {job_id: known[job_id] for job_id in each if job_id in known}
            return VisitFields(parts, each, refused, mine, seen=seen_of(seen, each))

        answers = await run_in_steps(db, "requeue", ids, request, Outcomes)
        done += (pair for found in answers.values() for pair in found if pair[1] != _AGAIN)
        ids = {
            base: [job_id for job_id, word in found if word == _AGAIN]
            for base, found in answers.items()
            if any(word == _AGAIN for _, word in found)
        }
        if not ids:
            return done
    raise Unavailable("gave up: other calls kept changing what the same jobs wait for")


def seen_of(seen: Mapping[JobId, str] | None, ids: Iterable[JobId]) -> object:
    """Return the hashes of these jobs as scripts take them."""
    return False if seen is None else {each: seen[each] for each in ids if each in seen}


_LINKS = list[_Link]


def _any_edge(links: Mapping[str, Iterable[_Link]]) -> bool:
    return any(link.flat for found in links.values() for link in found)


class _Plans:
    """The new edges of the jobs of one call."""

    def __init__(self, db: Database, links: Mapping[str, Sequence[_Link]]) -> None:
        self._db = db
        self._links = {
            base: [link for link in found if not link.refusal] for base, found in links.items()
        }
        self._parents: dict[JobId, _Parent] = {}
        self._awaited: set[tuple[str, str]] = set()
        # Jobs of whose parents nothing is known, as their server does not answer.
        self._unknown: set[JobId] = set()

    async def make(self) -> dict[str, dict[JobId, object]]:
        """Per base and job why the job is refused, and the edges before and after."""
        await self._read_parents()
        refused = {
            link.id
            for found in self._links.values()
            for link in found
            if any(self._state(link.id, *pair, ()) is None for pair in link.edges.items())
        } | self._unknown
        coming = self._coming(refused)
        return {
            base: {
                link.id: item_of(
                    "requeue",
                    "plan",
                    why=self._refusal(link.id) if link.id in refused else False,
                    edges=[self._change(link.id, *pair, coming) for pair in link.edges.items()],
                )
                for link in found
                if link.flat
            }
            for base, found in self._links.items()
        }

    def _refusal(self, job_id: JobId) -> str:
        return (Refusal.SILENT if job_id in self._unknown else Refusal.PARENT_FAILED).value

    async def _read_parents(self) -> None:
        """Read the parents, and note with them the children that may have to wait."""
        among = {link.id for found in self._links.values() for link in found}
        children: defaultdict[JobId, dict[JobId, object]] = defaultdict(dict)
        for base, found in self._links.items():
            tag = queue_tag(queue_of(base))
            for link in found:
                for parent, edge in link.edges.items():
                    waits = edge_of_requeued(edge.on_failure, edge.state, JobStatus.DEAD)
                    is_waiting = parent in among or waits is not EdgeState.SETTLED
                    children[parent][link.id] = item_of(
                        "relink",
                        "noted",
                        child=link.id,
                        edge=f"{tag} {edge.on_failure}",
                        waits=is_waiting,
                    )
        queues, unknown = await locate_some(self._db, children)
        located = by_base(self._db, queues)
        requests = {
            base: [
                item_of("relink", "each", parent=parent, children=list(children[parent].values()))
                for parent in each
            ]
            for base, each in located.items()
        }
        answers, silent = await self._db.run_some("relink", requests, list[_Parent])
        unknown.update(parent for base in silent for parent in located[base])
        for base, parents in answers.items():
            pairs = zip(located[base], parents, strict=True)
            self._parents.update((parent, each) for parent, each in pairs if each.status)
        self._unknown = {child for parent in unknown for child in children[parent]}
        gone = [
            (parent, child)
            for parent, noted in children.items()
            for child in noted
            if parent not in self._parents and parent not in unknown
        ]
        if gone:
            await self._look_for_news(gone)

    async def _look_for_news(self, gone: Sequence[tuple[JobId, JobId]]) -> None:
        """Look in all queues for the ends of parents that are not there, noted where those were."""
        queues = await queue_names(self._db)
        pairs = [item_of("awaited", "pair", parent=parent, child=child) for parent, child in gone]
        requests = {self._db.keys.queue(queue): pairs for queue in queues}
        answers, silent = await self._db.run_some("awaited", requests, list[tuple[str, str]])
        self._awaited = {pair for pairs in answers.values() for pair in pairs}
        if silent:
            self._unknown |= {
                child for parent, child in gone if (parent, child) not in self._awaited
            }

    def _coming(self, refused: Collection[JobId]) -> set[JobId]:
        """Return the jobs to requeue: of two jobs with one key the first of the visit."""
        coming: set[JobId] = set()
        for found in self._links.values():
            keys: set[str] = set()
            for link in found:
                key = key_of(link.key)
                if link.id not in refused and key not in keys:
                    coming.add(link.id)
                    keys |= {key} - {""}
        return coming

    def _state(
        self, child: JobId, parent: JobId, edge: Edge, coming: Collection[JobId]
    ) -> EdgeState | None:
        if (parent, child) in self._awaited:
            # The handover of the parent's end is still under way.
            return edge.state
        if parent in coming:
            return EdgeState.OPEN
        known = self._parents.get(parent)
        status = None if known is None else JobStatus(known.status)
        return edge_of_requeued(edge.on_failure, edge.state, status)

    def _change(self, child: JobId, parent: JobId, edge: Edge, coming: Collection[JobId]) -> object:
        state = self._state(child, parent, edge, coming) or edge.state
        known = self._parents.get(parent)
        seq = edge.seq if known is None else known.seq
        after = Edge(state, edge.on_failure, seq).stored()
        return item_of("requeue", "edge", parent=parent, expected=edge.stored(), after=after)
