"""The sweep: mends what one server has lost of that which several keep together.

A locator and its job, an edge and the note of the edge with the parent, lie in different slots, and
a failover may undo the last writes of one alone. A call that is under way looks the same. So what
looks lost is only noted, looked at again in each later call, and mended when it has stood so for a
minute.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import NamedTuple

import msgspec

from forge_jobs.errors import Unavailable
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.sweeps import Mended, Swept
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.queues import in_every_queue, note_queues, queue_names
from forge_jobs.storage.redis.base.scripts import item_of, request_of
from forge_jobs.storage.redis.base.steps import run_some_in_steps
from forge_jobs.storage.redis.jobs.children import PARENTS_AT_ONCE, Edge
from forge_jobs.storage.redis.jobs.filters import filter_parts, portions
from forge_jobs.storage.redis.keys import queue_of, queue_tag
from forge_jobs.storage.redis.locators import late
from forge_jobs.storage.redis.locators.dangling import DanglingLocators
from forge_jobs.storage.redis.locators.locators import locate_some
from forge_jobs.storage.redis.locators.moving import Mover

_STOOD_S = 60.0
_MOST_SUSPECTS = 20_000
_PAIRS_AT_ONCE = 1_000
_PERMIT_STEPS = 10


class _Survey(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``survey.lua`` about a queue."""

    blocked: list[tuple[JobId, list[str]]]
    last_blocked: str
    ids: list[JobId]
    status: int
    last_id: str
    parks: bool


class _Place(NamedTuple):
    """How far a queue has been looked through."""

    blocked_after: str = ""
    number: int = 1
    id_after: str = ""


class _Wait(NamedTuple):
    """A blocked job and a parent that the job waits for."""

    queue: str
    child: JobId
    parent: JobId
    edge: Edge

    @property
    def link(self) -> str:
        """Return the edge as the parent notes it."""
        return f"{queue_tag(self.queue)} {self.edge.on_failure}"


_Suspect = _Wait | Mended


class Sweeper:
    """Sweeps, and remembers how far the last call looked, and what to look at again."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._places: dict[str, _Place] = {}
        self._suspects: dict[_Suspect, float] = {}
        self._permits: dict[str, str] = {}
        self._dangling = DanglingLocators(db)
        self._mover = Mover(db)

    async def sweep(self, limit: int) -> Swept:
        """See ``JobStore.sweep``."""
        queues = await queue_names(self._db)
        if self._db.is_cluster:
            await late.mend(self._db, queues)
        waits, jobs = await self._survey(queues, max(1, limit // max(1, len(queues))))
        stranded = await self._stranded(waits)
        unlocated = await self._unlocated(jobs)
        standing = self._stood([*stranded, *unlocated])
        told = await self._tell([one for one in stranded if one in standing], stranded)
        located = await self._locate([one for one in unlocated if one in standing])
        forgotten, strange = await self._dangling.forget(queues)
        if strange:
            # The name is written before the queue, so this is no call under way.
            await note_queues(self._db, strange)
        await self._mend_permits()
        moved = await self._mover.go_on()
        return Swept(
            notified=told, located=located, queues=tuple(strange), forgotten=forgotten, moved=moved
        )

    async def _survey(self, queues: Collection[str], each: int) -> tuple[list[_Wait], set[Mended]]:
        """Return some blocked jobs with their parents, and some jobs. Both include the suspects."""
        named: defaultdict[str, list[JobId]] = defaultdict(list)
        for one in self._suspects:
            if isinstance(one, _Wait) and one.child not in named[one.queue]:
                named[one.queue].append(one.child)
        db = self._db
        requests = {}
        for queue in queues:
            place = self._places.get(queue, _Place())
            requests[db.keys.queue(queue)] = request_of(
                "survey", **place._asdict(), limit=each, named=named[queue]
            )
        answers, _ = await db.run_some("survey", requests, _Survey)
        waits: dict[_Wait, None] = {}
        jobs = {one for one in self._suspects if isinstance(one, Mended)}
        for base, found in answers.items():
            queue = queue_of(base)
            self._places[queue] = _Place(found.last_blocked, found.status, found.last_id)
            if found.parks:
                self._permits.setdefault(base, "")
            jobs.update(Mended(queue, job_id) for job_id in found.ids)
            for child, flat in found.blocked:
                for parent, stored in zip(flat[::2], flat[1::2], strict=True):
                    edge = Edge.read(stored)
                    if edge.state.waits:
                        waits[_Wait(queue, child, JobId(parent), edge)] = None
        return list(waits), jobs

    def _stood(self, lost: Iterable[_Suspect]) -> set[_Suspect]:
        """Return the suspects that have stood so for a minute. The others are noted."""
        now = self._db.elapsed()
        self._suspects = {one: self._suspects.get(one, now) for one in islice(lost, _MOST_SUSPECTS)}
        return {one for one, since in self._suspects.items() if now - since >= _STOOD_S}

    # -- children ----------------------------------------------------------------------------

    async def _stranded(self, waits: Collection[_Wait]) -> dict[_Wait, str]:
        """Return the edges that no parent will ever settle, with the base to settle them from.
        Nothing is known of those on servers that do not answer."""
        db = self._db
        located, unknown = await locate_some(db, {one.parent for one in waits})
        bases = {
            one: db.keys.queue(located.get(one.parent, one.queue))
            for one in waits
            if one.parent not in unknown
        }
        requests = _by_base(
            bases,
            lambda one: item_of(
                "lost", "edge", parent=one.parent, child=one.child, state=one.edge.state.value
            ),
        )
        answers, _ = await run_some_in_steps(db, "lost", requests, list[bool], PARENTS_AT_ONCE)
        verdicts = {base: iter(found) for base, found in answers.items()}
        lost = {
            one: base for one, base in bases.items() if base in verdicts and next(verdicts[base])
        }
        if not lost:
            return {}
        # The end of a parent that was removed is noted where the parent was.
        pairs = [item_of("awaited", "pair", parent=one.parent, child=one.child) for one in lost]
        coming: set[tuple[JobId, JobId]] = set()
        try:
            for some in portions(pairs, _PAIRS_AT_ONCE):
                awaited = await in_every_queue(db, "awaited", some, list[tuple[JobId, JobId]])
                coming.update(pair for found in awaited.values() for pair in found)
        except Unavailable:
            return {}
        return {one: base for one, base in lost.items() if (one.parent, one.child) not in coming}

    async def _tell(
        self, standing: Collection[_Wait], bases: Mapping[_Wait, str]
    ) -> tuple[Mended, ...]:
        requests = _by_base(
            {one: bases[one] for one in standing},
            lambda one: item_of(
                "tell_lost",
                "edge",
                parent=one.parent,
                child=one.child,
                state=one.edge.state.value,
                link=one.link,
                since=one.edge.seq,
            ),
        )
        answers, _ = await run_some_in_steps(
            self._db, "tell_lost", requests, list[bool], PARENTS_AT_ONCE
        )
        verdicts = {base: iter(found) for base, found in answers.items()}
        told = {
            Mended(one.queue, one.child)
            for one in standing
            if bases[one] in verdicts and next(verdicts[bases[one]])
        }
        return tuple(sorted(told, key=lambda one: one.job_id))

    # -- limits ------------------------------------------------------------------------------

    async def _mend_permits(self) -> None:
        """Give back what no claim uses, of the keys for which jobs wait, and let these be ready."""
        for _ in range(_PERMIT_STEPS):
            # What is silent now is looked at by the next call.
            answers, _ = await self._db.run_some("mend_permits", self._permits, str)
            for base, last in answers.items():
                self._permits[base] = last
                if not last:
                    del self._permits[base]
            if not answers:
                break

    # -- locators ----------------------------------------------------------------------------

    async def _unlocated(self, jobs: Collection[Mended]) -> list[Mended]:
        located, unknown = await locate_some(self._db, {one.job_id for one in jobs})
        # A suspect stays a suspect until its locator is found.
        unknown -= {one.job_id for one in self._suspects if isinstance(one, Mended)}
        found = {*located, *unknown}
        return await self._there([one for one in jobs if one.job_id not in found])

    async def _there(self, jobs: Collection[Mended]) -> list[Mended]:
        """Return the jobs that are stored."""
        every = filter_parts(JobFilter())
        ids: defaultdict[str, list[JobId]] = defaultdict(list)
        for one in jobs:
            ids[self._db.keys.queue(one.queue)].append(one.job_id)
        requests = {
            base: request_of("match", meant=every, ids=found) for base, found in ids.items()
        }
        stored, _ = await self._db.run_some("match", requests, list[JobId])
        return [one for one in jobs if one.job_id in stored.get(self._db.keys.queue(one.queue), ())]

    async def _locate(self, standing: Collection[Mended]) -> tuple[Mended, ...]:
        requests: defaultdict[str, list[tuple[JobId, str]]] = defaultdict(list)
        for one in await self._there(standing):
            base = self._db.places.of(one.job_id).removesuffix(":ids")
            requests[base].append((one.job_id, one.queue))
        answers = await late.relocate(self._db, requests)
        written = {job_id for found in answers.values() for job_id in found}
        return tuple(one for one in standing if one.job_id in written)


def _by_base(
    bases: Mapping[_Wait, str], request: Callable[[_Wait], tuple[object, ...]]
) -> dict[str, list[tuple[object, ...]]]:
    found: defaultdict[str, list[tuple[object, ...]]] = defaultdict(list)
    for one, base in bases.items():
        found[base].append(request(one))
    return found
