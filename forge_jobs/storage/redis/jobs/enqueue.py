"""Stores requests: locators first, then each queue's jobs in one step.

On one server a call is one step, which writes the locators too. A call of more steps (several
queues of a cluster, edges between jobs) is planned first, so that a refusal stores nothing, and
then stored queue by queue. A call that another one has overtaken begins again, and finds the jobs
that it has stored by then as its own.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from forge_jobs.errors import Conflict, NotFound, Unavailable
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import EnqueueOutcome, NewJob
from forge_jobs.outages import Pauses
from forge_jobs.storage.redis.base.database import BASES_AT_ONCE, Database
from forge_jobs.storage.redis.base.job_rows import Templates, doc_of, is_plain, new_job_fields
from forge_jobs.storage.redis.base.places import State
from forge_jobs.storage.redis.base.queues import note_queues
from forge_jobs.storage.redis.base.requests import EnqueueRequest
from forge_jobs.storage.redis.config.queues import DEFAULT_FIELDS
from forge_jobs.storage.redis.driver.errors import WrongType
from forge_jobs.storage.redis.jobs.children import (
    NO_PLAN,
    Edges,
    Otherwise,
    Plan,
    Words,
    have_many_parents,
    missing,
)
from forge_jobs.storage.redis.jobs.unique_keys import NEW, outcome_of
from forge_jobs.storage.redis.locators.locating import Ids, Locating
from forge_jobs.storage.redis.locators.moving import look_again, refresh
from forge_jobs.storage.wakeups import until_set

_TRIES = 20
_AT_ONCE = 2
_PAUSES = Pauses(0.004, 0.05, jitter=1)


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """The scripts' answer to a request for one queue.

    ``stored``: per job ``new``, ``repeat``, ``duplicate`` or ``replaced``, and the id that the job
    stands for. Empty when all are new. A ``+`` says that the job waits as a follow-up.
    ``elsewhere``: ids that are, or were, in another queue, with their locators.
    ``other``: the id that is stored with another content. ``held``: a key and the job that holds
    the key. ``missing``: parents that do not exist. ``moved``: locators are elsewhere by now.
    ``unlisted``: the queue, whose name is not among those of all queues yet. ``again``: another
    call was faster.
    """

    verdict: str
    pairs: list[tuple[str, str]]


_TOLD: Otherwise = "told"
_LEFT: Otherwise = "left"

_DEFAULTS = msgspec.json.encode(DEFAULT_FIELDS).decode()
"""The request of a queue. A script unpacks it only for a new queue."""

Around = Callable[[str, object], object]


def _unchanged(_base: str, request: object) -> object:
    return request


async def enqueue(
    db: Database,
    requests: Sequence[NewJob],
    *,
    script: str = "enqueue",
    around: Around = _unchanged,
    late: Callable[[Mapping[JobId, str]], None] | None = None,
) -> list[EnqueueOutcome]:
    """See ``JobStore.enqueue``.

    :param script: stores the jobs of one queue and answers as ``enqueue`` does
    :param late: gets the jobs that are stored without a locator, and their queues
    :param around: makes its request of a base and the request for ``enqueue``
    """
    if len(requests) == 1 and script == "enqueue" and not db.is_cluster and is_plain(requests[0]):
        [request] = requests
        if await _store_one(db, request):
            return [EnqueueOutcome(request.id)]
    call = _Call(db, requests, script, around)
    for tried in range(_TRIES):
        if await call.attempt():
            if late and (left := call.late()):
                late(left)
            return call.outcomes()
        if tried >= _AT_ONCE:
            # Two that go in step would bar each other on and on.
            await until_set(asyncio.Event(), _PAUSES.after(tried - _AT_ONCE + 1))
    raise Unavailable("gave up: other calls kept storing the same ids or keys; try again")


async def _store_one(db: Database, job: NewJob) -> bool:
    """False: it is for the script that knows repeats and new queues, and nothing is stored."""
    keys = (db.keys.queue(job.queue), db.places.of(job.id))
    if db.places.source(job.id) or keys[0] in db.spoilt.stopped:
        return False
    plain = (job.id, job.payload, job.kind, job.priority, doc_of(job))
    arguments = (job.queue, db.keys.channel, *plain, db.known.publish)
    try:
        return bool(await db.run_alone("enqueue_one", keys, *arguments))
    except WrongType:
        return False  # The other script says which queue it is.


class _Call:
    """A call, and the outcomes of its requests so far."""

    def __init__(
        self, db: Database, requests: Sequence[NewJob], script: str, around: Around
    ) -> None:
        self._db = db
        self._requests = requests
        # That script knows how a waiting job ends too.
        is_keyed = script == "enqueue" and any(one.unique or one.struck for one in requests)
        is_limited = script == "enqueue" and any(one.limit_name for one in requests)
        self._script = ("enqueue_keyed" if is_keyed else script) + (
            "_limited" if is_limited else ""
        )
        self._around = around
        self._outcomes: dict[int, EnqueueOutcome] = {}
        self._locating = Locating(db, requests)
        # Queues whose names this call has added to those of all.
        self._listed: set[str] = set()
        # What this call has stored itself.
        self._stored: set[str] = set()
        # Ids of the call -> the jobs that they stand for.
        self._holders: dict[JobId, JobId] = {}
        self._check_queues()

    def _check_queues(self) -> None:
        """Refuse an id that comes twice for two queues. Within one queue the script compares."""
        first: dict[str, NewJob] = {}
        for index, request in enumerate(self._requests):
            earlier = first.setdefault(request.id, request)
            if earlier.queue != request.queue:
                if not _is_same(request.fingerprint, earlier.fingerprint):
                    raise _other_content(request.id)
                self._outcomes[index] = EnqueueOutcome(request.id)

    def outcomes(self) -> list[EnqueueOutcome]:
        """Return the outcome per request, once an attempt has come to its end."""
        return [self._outcomes[index] for index in range(len(self._requests))]

    def late(self) -> dict[JobId, str]:
        """Jobs that are stored without a locator, and their queues."""
        stored = {one.job_id for one in self._outcomes.values() if not one.deduplicated}
        late = self._locating.late
        return {job_id: queue for job_id, queue in late.items() if job_id in stored}

    async def attempt(self) -> bool:
        """Return whether all is stored. False: the call must be tried again.

        :raises StorageError: refused
        """
        open_ones = [i for i in range(len(self._requests)) if i not in self._outcomes]
        groups: dict[str, list[int]] = {}
        for index in open_ones:
            groups.setdefault(self._requests[index].queue, []).append(index)
        if self._db.is_cluster and not await self._locate(groups):
            return False
        at_once = 1 if self._db.is_cluster else BASES_AT_ONCE
        if len(groups) <= at_once and not any(one.after for one in self._requests):
            words = await self._ask(self._script, groups, NO_PLAN)
            self._note(words or {})
            return words is not None
        planned = await self._ask("plan", groups, NO_PLAN)
        if planned is None:
            return False
        edges = self._edges(planned)
        await edges.locate(self._db)
        return await self._store_planned(groups, planned, edges)

    async def _store_planned(
        self, groups: dict[str, list[int]], planned: Words, edges: Edges
    ) -> bool:
        queues = dict.fromkeys((*groups, *edges.queues.values()))
        at_once = 1 if self._db.is_cluster else BASES_AT_ONCE
        if len(queues) <= at_once and not self._stored and not have_many_parents(self._requests):
            # Jobs and links are one step.
            links = edges.by_base(self._db, "missing")
            every = {name: groups.get(name, []) for name in queues}
            words = await self._ask(self._script, every, Plan(planned, edges, links))
            self._note({**planned, **words} if words is not None else {})
            return words is not None
        # A refusal after the first wave would leave that one stored.
        if lacking := await edges.missing_in(self._db):
            await self._heed([Answer("missing", lacking)])
        for wave in self._waves(groups, edges):
            words = await self._ask(self._script, wave, Plan(planned, edges, {}))
            if words is None:
                return False
            self._note(words)
        self._note(planned)
        await self._link()
        return True

    def _waves(self, groups: Mapping[str, list[int]], edges: Edges) -> list[dict[str, list[int]]]:
        """Store parents first, so that a call that stops in between leaves no child that waits for
        a parent which never came."""
        depths = edges.depths(self._requests)
        waves: defaultdict[int, dict[str, list[int]]] = defaultdict(dict)
        for queue, indexes in groups.items():
            for index in indexes:
                own = self._requests[index].id
                # A request whose content another one takes goes together with that one.
                depth = depths.get(self._stands_for(own), depths[own])
                waves[depth].setdefault(queue, []).append(index)
        return [waves[depth] for depth in sorted(waves)]

    async def _link(self) -> None:
        """Link all jobs of the call that were stored in steps of their own: those of earlier
        attempts, and of earlier calls that may have died before they came to this."""
        for is_mine, otherwise in ((True, _TOLD), (False, _LEFT)):
            edges = Edges()
            for request in self._requests:
                if (request.id in self._stored) is is_mine and self._is_own(request.id):
                    for after in request.after:
                        edges.add(request, self._stands_for(after.job_id), after.on_failure)
            await edges.locate_some(self._db, self._locating.late)
            await edges.write(self._db, otherwise)

    def _note(self, words: Words) -> None:
        for index, (word, job_id) in words.items():
            self._outcomes[index] = outcome_of(word, job_id)

    async def _ask(self, script: str, groups: Mapping[str, list[int]], plan: Plan) -> Words | None:
        """Return the words for the requests that took part. None: try again."""
        keys = self._db.keys
        around = self._around if script == self._script else _unchanged
        sent: dict[str, Sequence[int]] = {}
        requests: dict[str, object] = {}
        also: dict[str, None] = {}
        await refresh(self._db)
        seen = self._db.places.states
        for queue, indexes in groups.items():
            base = keys.queue(queue)
            sent[base] = plan.writing(indexes)
            locators = {} if self._db.is_cluster else self._locating.by_hash(sent[base])
            also.update(dict.fromkeys(locators))
            also.update(dict.fromkeys(each.source for each in locators.values() if each.source))
            request = self._request(queue, indexes, sent[base], locators, plan)
            requests[base] = around(base, request)
        if not self._db.is_cluster:
            also[f"{keys.fleet}:queues"] = None
        answers = await self._db.run(script, requests, Answer, also=also)
        words: Words = {}
        refusals: list[Answer] = []
        for base, answer in answers.items():
            if answer.verdict == "stored":
                pairs = answer.pairs or [("new", self._requests[i].id) for i in sent[base]]
                words.update(zip(sent[base], pairs, strict=True))
            else:
                refusals.append(answer)
        if script == self._script:
            self._stored.update(job_id for word, job_id in words.values() if word == "new")
        if refusals:
            if script == self._script:
                self._note(words)
            await self._heed(refusals, seen)
            return None
        return words

    def _request(
        self,
        queue: str,
        indexes: Sequence[int],
        sent: Sequence[int],
        locators: Mapping[str, Ids],
        plan: Plan,
    ) -> object:
        templates = Templates()
        jobs = [
            new_job_fields(request, templates.number_of(request), plan.edges.texts_of(request.id))
            for request in (self._requests[index] for index in sent)
        ]
        is_cluster, keys = self._db.is_cluster, self._db.keys
        return EnqueueRequest(
            queue=queue,
            defaults=_DEFAULTS,
            locators=[ids.item(key) for key, ids in locators.items()],
            jobs=jobs,
            expected=plan.expected(sent),
            names=queue in self._listed if is_cluster else f"{keys.fleet}:queues",
            marks=self._locating.marks(sent) if is_cluster else (),
            links=plan.links.get(keys.queue(queue), ()),
            templates=templates.fields,
        )

    async def _locate(self, groups: Mapping[str, list[int]]) -> bool:
        """Write the locators, in a cluster a step before the jobs. False: try again."""
        elsewhere = await self._locating.write(groups)
        if elsewhere:
            await self._heed([Answer("elsewhere", elsewhere)])
        return not elsewhere

    async def _heed(self, refusals: Iterable[Answer], seen: tuple[State, ...] = ()) -> None:
        """Raise, or prepare the next attempt.

        :param seen: where locators were when the step was begun
        """
        for refusal in refusals:
            match refusal.verdict, refusal.pairs:
                case "other", [(_, job_id)]:
                    raise _other_content(job_id)
                case "held", [(key, holder)]:
                    raise Conflict(f"the unique key {key!r} is held by job {holder}")
                case "missing", [(parent, _), *_]:
                    raise missing(parent)
                case "elsewhere", pairs:
                    await self._take_over(pairs)
                case "moved", _:
                    await look_again(self._db, seen)
                case "unlisted", [(queue, _)]:
                    await note_queues(self._db, [queue])
                    self._listed.add(queue)

    async def _take_over(self, located: Iterable[tuple[str, str]]) -> None:
        """Judge ids of another queue: those that are there are repeats or conflicts."""
        by_base = self._locating.places(located)
        answers = await self._db.run("bar", by_base, list[tuple[str, str]])
        stored = {job_id: mark for pairs in answers.values() for job_id, mark in pairs}
        for index, request in enumerate(self._requests):
            if request.id in stored:
                if not _is_same(request.fingerprint, stored[request.id]):
                    raise _other_content(request.id)
                self._outcomes[index] = EnqueueOutcome(request.id)

    def _stands_for(self, job_id: JobId) -> JobId:
        return self._holders.get(job_id, job_id)

    def _is_own(self, job_id: JobId) -> bool:
        """Return whether the job is stored, and not dropped for another one that holds its key."""
        return self._stands_for(job_id) == job_id

    def _edges(self, words: Words) -> Edges:
        """Return the edges of the new jobs.

        A request that was dropped stands for the job that holds its key, also as a parent.
        """
        self._holders |= {self._requests[i].id: JobId(job_id) for i, (_, job_id) in words.items()}
        new = {self._requests[i].id: i for i, (word, _) in words.items() if word in NEW}
        edges = Edges()
        for job_id, index in new.items():
            # A follow-up waits for nothing but the holder of the key, as the scripts see to.
            for after in self._requests[index].after if words[index][0] == "new" else ():
                parent = self._stands_for(after.job_id)
                if new.get(parent, -1) >= index:
                    raise NotFound(
                        f"job {job_id} comes after {parent}, which the same call enqueues later"
                    )
                queue = self._requests[new[parent]].queue if parent in new else None
                edges.add(self._requests[index], parent, after.on_failure, queue)
        return edges


def _is_same(fingerprint: str, other: str) -> bool:
    return fingerprint != "" and fingerprint == other


def _other_content(job_id: str) -> Conflict:
    return Conflict(
        f"the id {job_id} is stored already, with another content; give each job its own id"
    )
