"""The parents and children of jobs, some of them in other queues."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from forge_jobs.errors import PartlyUnavailable
from forge_jobs.model.edges import MOST_OF_ONE, Kin, Relative
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Job, JobStatus
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.scripts import item_of, request_of
from forge_jobs.storage.redis.base.steps import run_some_in_steps
from forge_jobs.storage.redis.jobs.children import Edge
from forge_jobs.storage.redis.jobs.filters import portions
from forge_jobs.storage.redis.jobs.read import Whole, fields_of, whole_job
from forge_jobs.storage.redis.keys import queue_of
from forge_jobs.storage.redis.locators.asking import find
from forge_jobs.storage.redis.locators.locators import by_base, locate_some

_PAGES = 10
"""So often a call looks for further children, where listed ones have gone."""
_AT_ONCE = 2_000
"""So many relatives of several jobs are listed at once in each direction at most."""
_STATES_AT_ONCE = 1_000
"""Of so many relatives one step reads the states."""

_Pair = tuple[JobId, str]
"""A relative, and the job that the relative is a child of. A parent stands beside ""."""


class _Listed(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``kin.lua`` about one job."""

    is_stored: bool
    flat: tuple[str, ...]
    children: tuple[str, ...]


class _State(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``relatives.lua`` about one pair."""

    status: str
    kind: str
    edge: str


async def kin_of(db: Database, ids: Sequence[JobId], limit: int) -> dict[JobId, Kin]:
    """See ``KinStore.kin``."""
    queues, unknown = await locate_some(db, ids)
    found: dict[JobId, Kin] = {}
    for some in portions(sorted(queues), max(1, _AT_ONCE // (limit + 1))):
        reading = _Reading(db, {each: queues[each] for each in some}, limit)
        found |= await reading.kin()
        unknown |= reading.unknown
    if unknown:
        text = f"relatives of {len(unknown)} jobs are not known: their server does not answer"
        raise PartlyUnavailable(text, found, unknown)
    return found


async def with_parents(
    db: Database, job_id: JobId, late: Mapping[JobId, str]
) -> tuple[Job, tuple[Relative, ...]] | None:
    """See ``KinStore.with_parents``.

    :param late: jobs whose locators are not written yet, and their queues
    """
    queues, unknown = await find(db, [job_id], late)
    parents: tuple[Relative, ...] | None = None
    for base, ids in by_base(db, queues).items():
        answers, silent = await db.run_some(
            "with_parents", {base: ids}, list[Whole | Literal[False]]
        )
        if silent:
            break
        [whole] = answers[base]
        if not whole:
            return None
        parents = await _Reading(db, queues, MOST_OF_ONE).parents(job_id, whole[2])
        if parents is not None:
            return _with_edges(queue_of(base), job_id, whole, parents), parents
    if not queues and not unknown:
        return None
    text = f"job {job_id}, or a job before it, is not known: a server does not answer"
    raise PartlyUnavailable(text, {}, {job_id})


def _with_edges(queue: str, job_id: JobId, whole: Whole, parents: Sequence[Relative]) -> Job:
    fields, errors, _ = whole
    waits = [text for each in parents if each.edge.waits for text in (each.id, each.edge.value)]
    is_blocked = fields_of(whole).get("status") == JobStatus.BLOCKED.value
    return whole_job(queue, job_id, (fields, errors, waits if is_blocked else []))


class _Reading:
    """The relatives of some jobs, read for all of the jobs at once.

    :param unknown: jobs with a relative on a server that does not answer
    """

    def __init__(self, db: Database, queues: Mapping[JobId, str], limit: int) -> None:
        self.unknown: set[JobId] = set()
        self._db = db
        self._queues = queues
        self._limit = limit
        self._states: dict[_Pair, _State] = {}
        self._children: dict[JobId, list[Relative]] = {}

    async def kin(self) -> dict[JobId, Kin]:
        """Return the relatives of the jobs that are stored and known."""
        listed = await self._list(self._queues, 0)
        edges = {job: self._edges(each.flat) for job, each in listed.items() if each.is_stored}
        self._children = {job: [] for job in edges}
        parents, unlocated = await locate_some(
            self._db, (parent for some in edges.values() for parent in some)
        )
        cut = await self._read(parents, {job: listed[job] for job in edges})
        for job, some in edges.items():
            if any(each in unlocated or self._is_missing(each, parents) for each in some):
                self.unknown.add(job)
        return {
            job: self._kin(job, some, parents, is_cut=job in cut)
            for job, some in edges.items()
            if job not in self.unknown
        }

    async def parents(self, job: JobId, flat: Sequence[str]) -> tuple[Relative, ...] | None:
        """Return the parents of a job by its edges. None: one is not known.

        :param flat: parents and edges in turn
        """
        edges = self._edges(flat)
        queues, unlocated = await locate_some(self._db, edges)
        await self._ask({(parent, ""): queue for parent, queue in queues.items()})
        if unlocated or any(self._is_missing(each, queues) for each in edges):
            return None
        return self._kin(job, edges, queues, is_cut=False).parents

    async def _read(
        self, parents: Mapping[JobId, str], listed: Mapping[JobId, _Listed]
    ) -> set[JobId]:
        """Read the states of the parents, and of children until there are enough of each job.

        Return the jobs of which further children are left unread.
        """
        asked: dict[_Pair, str] = {(parent, ""): queue for parent, queue in parents.items()}
        for page in range(1, _PAGES + 1):
            members = {job: _members(each.children) for job, each in listed.items()}
            asked |= {(each, job): at for job, some in members.items() for each, at in some.items()}
            await self._ask(asked)
            for job, some in members.items():
                self._add_children(job, some)
            listed = {job: each for job, each in listed.items() if self._needs_more(job, each)}
            if not listed or page == _PAGES:
                break
            listed, asked = await self._list(listed, page * (self._limit + 1)), {}
        return set(listed)

    async def _list(self, jobs: Iterable[JobId], start: int) -> dict[JobId, _Listed]:
        located = by_base(self._db, {job: self._queues[job] for job in jobs})
        requests = {
            base: request_of("kin", ids=ids, start=start, most=self._limit + 1)
            for base, ids in located.items()
        }
        answers, silent = await self._db.run_some("kin", requests, list[_Listed])
        self.unknown.update(*(located[base] for base in silent))
        return {
            job: each
            for base, answer in answers.items()
            for job, each in zip(located[base], answer, strict=True)
        }

    async def _ask(self, asked: Mapping[_Pair, str]) -> None:
        located: dict[str, list[_Pair]] = {}
        for pair, queue in asked.items():
            located.setdefault(self._db.keys.queue(queue), []).append(pair)
        requests = {
            base: [item_of("relatives", "each", id=job, parent=parent) for job, parent in pairs]
            for base, pairs in located.items()
        }
        answers, _ = await run_some_in_steps(
            self._db, "relatives", requests, list[_State], _STATES_AT_ONCE
        )
        for base, states in answers.items():
            self._states |= zip(located[base], states, strict=True)

    def _add_children(self, job: JobId, queues: Mapping[JobId, str]) -> None:
        for child, queue in queues.items():
            state = self._states.get((child, job))
            if state is None:
                self.unknown.add(job)
            elif state.status and state.edge:
                self._children[job].append(_relative(child, queue, state, Edge.read(state.edge)))

    def _needs_more(self, job: JobId, listed: _Listed) -> bool:
        is_full = len(listed.children) > self._limit
        return is_full and len(self._children[job]) <= self._limit and job not in self.unknown

    def _edges(self, flat: Sequence[str]) -> dict[JobId, Edge]:
        stored = sorted(zip(flat[::2], flat[1::2], strict=True))
        return {JobId(parent): Edge.read(edge) for parent, edge in stored[: self._limit + 1]}

    def _is_missing(self, parent: JobId, located: Mapping[JobId, str]) -> bool:
        return parent in located and (parent, "") not in self._states

    def _kin(
        self, job: JobId, edges: Mapping[JobId, Edge], queues: Mapping[JobId, str], *, is_cut: bool
    ) -> Kin:
        parents = [
            _relative(parent, queues.get(parent, ""), self._states.get((parent, "")), edge)
            for parent, edge in edges.items()
        ]
        children = self._children.get(job, [])
        return Kin(
            parents=tuple(parents[: self._limit]),
            children=tuple(children[: self._limit]),
            more_parents=len(parents) > self._limit,
            more_children=is_cut or len(children) > self._limit,
        )


def _members(listed: Iterable[str]) -> dict[JobId, str]:
    """Return child -> queue, in id order."""
    pairs = (member.split() for member in listed)
    return {JobId(child): queue_of(tag) for child, tag in pairs}


def _relative(job_id: JobId, queue: str, state: _State | None, edge: Edge) -> Relative:
    is_stored = state is not None and state.status != ""
    return Relative(
        id=job_id,
        queue=queue if is_stored else "",
        kind=state.kind if state is not None else "",
        status=JobStatus(state.status) if state is not None and state.status else None,
        on_failure=edge.on_failure,
        edge=edge.state,
    )
