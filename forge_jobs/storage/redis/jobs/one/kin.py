"""The parents and children of jobs, some of them in other queues."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from forge_jobs.errors import PartlyUnavailable
from forge_jobs.model.edges import MOST_KIN, Kin, Relative
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.scripts import item_of, request_of
from forge_jobs.storage.redis.base.steps import run_some_in_steps
from forge_jobs.storage.redis.jobs.children import Edge
from forge_jobs.storage.redis.keys import queue_of
from forge_jobs.storage.redis.locators.locators import locate_some

_PAGES = 10
"""So often a call looks for further children, where listed ones have gone."""


class _Silent(Exception):
    """A server that knows of a relative does not answer."""


class _Listed(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``kin.lua``."""

    is_stored: bool
    flat: tuple[str, ...]
    children: tuple[str, ...]


class _State(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``relatives.lua``."""

    status: str
    kind: str
    edge: str


async def kin_of(db: Database, ids: Sequence[JobId], limit: int) -> dict[JobId, Kin]:
    """See ``KinStore.kin``."""
    queues, unknown = await locate_some(db, ids)
    found: dict[JobId, Kin] = {}
    for job_id, queue in sorted(queues.items()):
        try:
            kin = await _kin(db, queue, job_id, limit)
        except _Silent:
            unknown.add(job_id)
        else:
            if kin is not None:
                found[job_id] = kin
    if unknown:
        text = f"relatives of {len(unknown)} jobs are not known: their server does not answer"
        raise PartlyUnavailable(text, found, unknown)
    return found


async def _kin(db: Database, queue: str, job_id: JobId, limit: int) -> Kin | None:
    listed = await _listed(db, queue, job_id, 0, limit + 1)
    if not listed.is_stored:
        return None
    parents = await _parents(db, listed.flat, limit)
    children, start, is_cut = await _children(db, job_id, listed.children), limit + 1, False
    while len(listed.children) == limit + 1 and len(children) <= limit:
        if start > _PAGES * limit:
            is_cut = True
            break
        listed = await _listed(db, queue, job_id, start, limit + 1)
        children += await _children(db, job_id, listed.children)
        start += limit + 1
    return Kin(
        parents=tuple(parents[:limit]),
        children=tuple(children[:limit]),
        more_parents=len(parents) > limit,
        more_children=is_cut or len(children) > limit,
    )


async def _listed(db: Database, queue: str, job_id: JobId, start: int, count: int) -> _Listed:
    base = db.keys.queue(queue)
    request = request_of("kin", id=job_id, start=start, most=count)
    answers, silent = await db.run_some("kin", {base: request}, _Listed)
    if silent:
        raise _Silent
    return answers[base]


async def _parents(db: Database, flat: Sequence[str], limit: int) -> list[Relative]:
    edges = dict(sorted(zip(flat[::2], map(Edge.read, flat[1::2]), strict=True))[: limit + 1])
    queues, unknown = await locate_some(db, map(JobId, edges))
    if unknown:
        raise _Silent
    states = await _states(db, queues, "")
    return [
        _relative(JobId(parent), queues.get(JobId(parent), ""), states.get(JobId(parent)), edge)
        for parent, edge in edges.items()
    ]


async def _children(db: Database, parent: JobId, members: Iterable[str]) -> list[Relative]:
    pairs = (member.split() for member in members)
    queues = {JobId(child): queue_of(tag) for child, tag in pairs}
    states = await _states(db, queues, parent)
    return [
        _relative(child, queues[child], state, Edge.read(state.edge))
        for child, state in sorted(states.items())
        if state.status and state.edge
    ]


async def _states(db: Database, queues: Mapping[JobId, str], parent: str) -> dict[JobId, _State]:
    asked: dict[str, list[JobId]] = {}
    for job_id, queue in queues.items():
        asked.setdefault(db.keys.queue(queue), []).append(job_id)
    requests = {
        base: [item_of("relatives", "each", id=job_id, parent=parent) for job_id in ids]
        for base, ids in asked.items()
    }
    answers, silent = await run_some_in_steps(db, "relatives", requests, list[_State], MOST_KIN)
    if silent:
        raise _Silent
    return {
        job_id: state
        for base, ids in asked.items()
        for job_id, state in zip(ids, answers[base], strict=True)
    }


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
