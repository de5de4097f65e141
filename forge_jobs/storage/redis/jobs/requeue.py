"""Requeues and restores: jobs that come after others wait again for those that have yet to end.

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
from forge_jobs.storage.redis.base.scripts import item_of, request_of
from forge_jobs.storage.redis.base.steps import run_in_steps, run_some_in_steps
from forge_jobs.storage.redis.jobs.children import PARENTS_AT_ONCE, Edge
from forge_jobs.storage.redis.jobs.filters import portions
from forge_jobs.storage.redis.keys import queue_of, queue_tag
from forge_jobs.storage.redis.locators.locators import by_base, locate_some

_TRIES = 10
_AGAIN = "again"
_PAIRS_AT_ONCE = 1_000

Outcomes = list[tuple[JobId, str]]
_Ids = Mapping[str, Sequence[JobId]]
_AllPlans = Mapping[str, Mapping[JobId, object]]


class Verb(msgspec.Struct, frozen=True):
    """A verb by which jobs wait again.

    :param look: the script that says what must be known of jobs before
    :param heeds_children: a job stays when a child knows of the end
    """

    name: str
    look: str
    heeds_children: bool = False

    @property
    def refused(self) -> object:
        """The refusals for the status alone."""
        return REFUSED[self.name]


VERBS = {"requeue": Verb("requeue", "links"), "restore": Verb("restore", "restorable", True)}


class _Link(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``links.lua`` or ``restorable.lua`` about a job.

    :param refusal: why the job is not requeued in any case, False for no such reason
    :param flat: parents and edges in turn
    :param kin: children that must not hear of the end of the job, with the tags of their queues. Of
        a restore all children, of a requeue those that have not heard yet
    :param seq: the number of the newest end that was noted in the queue
    """

    id: JobId
    refusal: str | bool
    key: str = ""
    flat: tuple[str, ...] = ()
    kin: tuple[str, ...] = ()
    seq: int = 0

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
    meant: tuple[str, Sequence[JobId], object, Verb],
    step: ActionStep,
    to: str | None,
) -> tuple[Outcomes, str | None]:
    """Let jobs of one queue wait again in one step of an action. Return outcomes, and the new
    cursor.

    :param meant: base of the queue, ids, the texts that were seen as scripts take them, the verb
    """
    base, ids, seen, verb = meant
    refused = verb.refused
    for _ in range(_TRIES):
        links: Mapping[str, list[_Link]] = {}
        if ids:
            asked = {base: VisitFields(parts, ids, refused, seen=seen)}
            links = await db.run(verb.look, asked, _LINKS)
        plans = await _plans(db, links, verb)
        request = VisitFields(parts, ids, refused, plans.get(base, {}), packed(step, to), seen)
        answer = await db.run_one(verb.name, base, request, Outcomes)
        outcomes, cursor = read_step(step, answer, to)
        if cursor != step.cursor or not ids:
            return outcomes, cursor
    raise Unavailable("gave up: other calls kept changing what the same jobs wait for; try again")


async def requeue(
    db: Database, parts: object, ids: _Ids, seen: Mapping[JobId, str] | None, verb: Verb
) -> Outcomes:
    """Let jobs wait again. Return the outcome of each.

    :param parts: the filter, as scripts take it
    :param ids: by base of their queue
    :param seen: see :class:`VisitFields`
    """
    done: Outcomes = []
    refused = verb.refused
    for _ in range(_TRIES):
        links = await run_in_steps(
            db,
            verb.look,
            ids,
            lambda _, each: VisitFields(parts, each, refused, seen=seen_of(seen, each)),
            _LINKS,
        )
        plans = await _plans(db, links, verb)

        def request(base: str, each: Sequence[JobId], plans: _AllPlans = plans) -> object:
            known = plans.get(base, {})
            mine = {job_id: known[job_id] for job_id in each if job_id in known}
            return VisitFields(parts, each, refused, mine, seen=seen_of(seen, each))

        answers = await run_in_steps(db, verb.name, ids, request, Outcomes)
        done += (pair for found in answers.values() for pair in found if pair[1] != _AGAIN)
        ids = {
            base: [job_id for job_id, word in found if word == _AGAIN]
            for base, found in answers.items()
            if any(word == _AGAIN for _, word in found)
        }
        if not ids:
            return done
    raise Unavailable("gave up: other calls kept changing what the same jobs wait for; try again")


def seen_of(seen: Mapping[JobId, str] | None, ids: Iterable[JobId]) -> object:
    """Return the hashes of these jobs as scripts take them."""
    return False if seen is None else {each: seen[each] for each in ids if each in seen}


_LINKS = list[_Link]


async def _plans(db: Database, links: Mapping[str, Sequence[_Link]], verb: Verb) -> _AllPlans:
    if not any(link.flat or link.kin for found in links.values() for link in found):
        return {}
    plans = _Plans(db, links, verb)
    made = await plans.make()
    await plans.void_ends()
    return made


class _Plans:
    """The new edges of the jobs of one call."""

    def __init__(self, db: Database, links: Mapping[str, Sequence[_Link]], verb: Verb) -> None:
        self._db = db
        self._verb = verb
        self._links = {
            base: [link for link in found if not link.refusal] for base, found in links.items()
        }
        self._parents: dict[JobId, _Parent] = {}
        self._awaited: set[tuple[str, str]] = set()
        # Jobs of whose parents or children nothing is known, as their server does not answer.
        self._unknown: set[JobId] = set()
        self._failed: set[JobId] = set()
        self._told: set[JobId] = set()
        self._coming_back: set[JobId] = set()

    async def make(self) -> dict[str, dict[JobId, object]]:
        """Per base and job why the job is refused, and the edges before and after."""
        if self._verb.heeds_children:
            self._told = await self._that_told(
                [link for found in self._links.values() for link in found], bars=False
            )
        await self._read_parents()
        self._failed = {
            link.id
            for found in self._links.values()
            for link in found
            if any(self._state(link.id, *pair, ()) is None for pair in link.edges.items())
        }
        refused = self._failed | self._unknown | self._told
        coming = self._coming_back = self._coming(refused)
        return {
            base: {
                link.id: item_of(
                    "requeue",
                    "plan",
                    why=self._refusal(link.id) if link.id in refused else False,
                    edges=[self._change(link.id, *pair, coming) for pair in link.edges.items()],
                    kin=len(link.kin) if self._verb.heeds_children else 0,
                    seq=link.seq,
                )
                for link in found
                if link.flat or link.kin
            }
            for base, found in self._links.items()
        }

    async def void_ends(self) -> None:
        """Keep ends of jobs that are to wait again from their children, also ends that are being
        delivered. When a job does not wait again after all, the sweep tells the children."""
        links = [link for found in self._links.values() for link in found]
        coming = [link for link in links if link.id in self._coming_back]
        told = await self._that_told(coming, bars=True)
        if not self._verb.heeds_children:
            return
        if told or not self._unknown.isdisjoint(self._coming_back):
            raise Unavailable("gave up: children may have heard of an end meanwhile; try again")

    async def _that_told(self, links: Sequence[_Link], *, bars: bool) -> set[JobId]:
        """Return the jobs of whose end a child knows."""
        pairs: defaultdict[str, list[tuple[object, ...]]] = defaultdict(list)
        parents: defaultdict[str, list[JobId]] = defaultdict(list)
        for link in links:
            for kin in link.kin:
                child, tag = kin.split()
                base = self._db.keys.queue(queue_of(tag))
                pair = item_of("void_ends", "pair", child=child, parent=link.id, seq=link.seq)
                pairs[base].append(pair)
                parents[base].append(link.id)
        found: set[JobId] = set()
        for base, each in pairs.items():
            for start in range(0, len(each), _PAIRS_AT_ONCE):
                some = slice(start, start + _PAIRS_AT_ONCE)
                request = {base: request_of("void_ends", bars=bars, pairs=each[some])}
                answers, silent = await self._db.run_some("void_ends", request, list[bool])
                if silent:
                    self._unknown.update(parents[base])
                    break
                named = zip(parents[base][some], answers[base], strict=True)
                found.update(parent for parent, knows in named if knows)
        return found

    def _refusal(self, job_id: JobId) -> str:
        if job_id in self._unknown:
            return Refusal.SILENT.value
        is_failed = job_id in self._failed
        return (Refusal.PARENT_FAILED if is_failed else Refusal.CHILDREN_KNOW).value

    async def _read_parents(self) -> None:
        """Read the parents, and note with them the children that may have to wait.

        Handovers to jobs that are refused already stay.
        """
        among = {link.id for found in self._links.values() for link in found}
        children: defaultdict[JobId, dict[JobId, object]] = defaultdict(dict)
        for base, found in self._links.items():
            tag = queue_tag(queue_of(base))
            for link in found:
                for parent, edge in link.edges.items():
                    waits = edge_of_requeued(edge.on_failure, edge.state, JobStatus.DEAD)
                    is_waiting = parent in among or waits is None or waits.hears
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
                item_of(
                    "relink",
                    "each",
                    parent=parent,
                    children=[
                        noted
                        for child, noted in children[parent].items()
                        if child not in self._told
                    ],
                )
                for parent in each
            ]
            for base, each in located.items()
        }
        answers, silent = await run_some_in_steps(
            self._db, "relink", requests, list[_Parent], PARENTS_AT_ONCE
        )
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
        silent = False
        for some in portions(pairs, _PAIRS_AT_ONCE):
            requests = {self._db.keys.queue(queue): some for queue in queues}
            answers, mute = await self._db.run_some("awaited", requests, list[tuple[str, str]])
            self._awaited.update(pair for found in answers.values() for pair in found)
            silent = silent or bool(mute)
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
        known = self._parents.get(parent)
        status = None if known is None else JobStatus(known.status)
        if parent in coming:
            status = JobStatus.PENDING
        return edge_of_requeued(edge.on_failure, edge.state, status)

    def _change(self, child: JobId, parent: JobId, edge: Edge, coming: Collection[JobId]) -> object:
        state = self._state(child, parent, edge, coming) or edge.state
        known = self._parents.get(parent)
        seq = edge.seq if known is None else known.seq
        after = Edge(state, edge.on_failure, seq).stored()
        return item_of("requeue", "edge", parent=parent, expected=edge.stored(), after=after)
