"""Stores requests: ids first, then unique keys, then parents, then the rows."""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence

from sqlalchemy import Row, insert, select, update

from forge_jobs.errors import Conflict, NotFound
from forge_jobs.model.edges import LINE_RULES, named_in_line
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import TERMINAL, Cause, EnqueueOutcome, JobStatus, NewJob, Unique
from forge_jobs.model.unique.keys import FOLLOWING, REPLACED, REPLACING
from forge_jobs.storage.sql.base.job_rows import due_at, new_job_values
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.tables import edges, handovers, jobs
from forge_jobs.storage.sql.base.transaction import HotStatement, Key, Overtaken, Tx
from forge_jobs.storage.sql.config.queues import declare_queues
from forge_jobs.storage.sql.hot.behind import hold_of, without_room
from forge_jobs.storage.sql.jobs.children import LIVE, TOLD
from forge_jobs.storage.sql.jobs.sequences.lines import in_line
from forge_jobs.storage.sql.jobs.struck import strike_new
from forge_jobs.storage.sql.jobs.unique_keys.keys import Keys, follow_up

DEDUPLICATED = "deduplicated"

_STORED = HotStatement(
    select(
        jobs.c.id, jobs.c.queue, jobs.c.kind, jobs.c.payload, jobs.c.status, jobs.c.fingerprint
    ).where(one_of(jobs.c.id, "ids"))
)
_EXISTING = select(jobs.c.id).where(one_of(jobs.c.id, "ids"))
_PARENTS = (
    select(jobs.c.id, jobs.c.status).where(one_of(jobs.c.id, "ids")).order_by(jobs.c.id)
).with_for_update(key_share=True)
_MARK_PARENTS = update(jobs).where(one_of(jobs.c.id, "ids")).values(has_children=True)
_INSERT_EDGES = insert(edges)
_INSERT_HANDOVERS = insert(handovers)


def enqueue(tx: Tx, requests: Sequence[NewJob]) -> list[EnqueueOutcome]:
    """Store the requests, all or none, in order. See ``JobStore.enqueue``.

    :raises Overtaken: another transaction has stored one of the ids or keys meanwhile
    """
    if not requests:
        return []
    batch = _Batch(tx, requests)
    outcomes = [batch.admit(request) for request in requests]
    batch.store()
    return outcomes


def answer_alone(tx: Tx, requests: Sequence[NewJob]) -> list[EnqueueOutcome] | None:
    """Return the answer of :func:`enqueue` when nothing is to be stored, otherwise None.

    Only counters are written, so an error leaves nothing to undo.

    :raises Conflict: as :func:`enqueue` does
    :raises NotFound: as :func:`enqueue` does
    """
    batch = _Batch(tx, requests, locks=False)
    outcomes = [batch.admit(request) for request in requests]
    return None if batch.has_news() else outcomes


class _Batch:
    """The state of one call: jobs stored already, and requests admitted so far."""

    def __init__(self, tx: Tx, requests: Sequence[NewJob], *, locks: bool = True) -> None:
        self._tx = tx
        self._stored = _read_stored(tx, [request.id for request in requests])
        self._keys = Keys(tx, requests, locks=locks)
        self._accepted: dict[str, NewJob] = {}
        # A dropped request stands for the job that holds its key, also as a parent.
        self._stands_for: dict[str, JobId] = {}

    def admit(self, request: NewJob) -> EnqueueOutcome:
        if self._is_repeat(request):
            return EnqueueOutcome(request.id, follow_up=self._keys.is_follow_up(request.id))
        if request.unique is None:
            return self._accept(request)
        merged = self._keys.merged_into(request)
        if merged is not None:
            self._stands_for[request.id] = merged
            is_follow_up = self._keys.is_follow_up(merged)
            return EnqueueOutcome(merged, replaced=True, follow_up=is_follow_up)
        return self._admit_keyed(request, request.unique)

    def _admit_keyed(self, request: NewJob, unique: Unique) -> EnqueueOutcome:
        keys = self._keys
        keys.leave_expired(request)
        holder = keys.holder(request)
        if holder is None:
            opener = keys.cooling_down(request) if unique.mode == "cooldown" else None
            return self._accept(request) if opener is None else self._drop(request, opener)
        if unique.mode == "error":
            raise Conflict(f"the unique key {unique.key!r} is held by job {holder.id}")
        waiting = keys.waiting(request) if unique.mode in REPLACING else None
        if waiting is not None:
            keys.replace(waiting, request, self._accepted)
            self._note_dropped(request, waiting.id)
            return EnqueueOutcome(waiting.id, replaced=True, follow_up=waiting.is_follow_up)
        if unique.mode in FOLLOWING:
            self._accept(follow_up(request, holder))
            return EnqueueOutcome(request.id, follow_up=True)
        return self._drop(request, holder.id)

    def _accept(self, request: NewJob) -> EnqueueOutcome:
        self._accepted[request.id] = request
        self._keys.accept(request)
        self._tx.count(request.queue, Cause.ENQUEUED)
        return EnqueueOutcome(request.id)

    def _drop(self, request: NewJob, holder: JobId) -> EnqueueOutcome:
        self._note_dropped(request, holder)
        return EnqueueOutcome(holder, deduplicated=True)

    def _note_dropped(self, request: NewJob, stands_for: JobId) -> None:
        tx = self._tx
        self._stands_for[request.id] = stands_for
        tx.count(request.queue, DEDUPLICATED)

    def _is_repeat(self, request: NewJob) -> bool:
        earlier = self._accepted.get(request.id)
        if earlier is not None:
            _check_same(request, earlier.fingerprint, _content(earlier))
            return True
        row = self._stored.get(request.id)
        if row is None:
            return False
        # The payload of a job that is not to be kept goes when the job ends.
        dropped = row.payload == "" and JobStatus(row.status) in TERMINAL
        payload = request.payload if dropped else row.payload
        _check_same(request, row.fingerprint, (row.kind, row.queue, payload))
        return True

    def has_news(self) -> bool:
        """True when anything has been admitted that could be stored.

        :raises NotFound: a parent does not exist
        """
        parents = self._parents(self._accepted.values())
        for portion in portions(parents.keys() - self._accepted.keys()):
            there = set(self._tx.execute(_EXISTING, {"ids": portion}).scalars())
            _check_all(portion, there)
        return bool(self._accepted) or self._keys.has_changes()

    def store(self) -> None:
        tx = self._tx
        accepted = list(self._accepted.values())
        self._keys.write_before()
        if not accepted:
            return
        if any(request.sequence for request in accepted):
            accepted = in_line(tx, accepted, self._stands_for)
            self._accepted = {request.id: request for request in accepted}
        ensure_queues(tx, {request.queue for request in accepted} - tx.known_queues)
        parents = self._parents(accepted)
        ended = _read_parents(tx, set(parents) - self._accepted.keys())
        in_lines = {request.id for request in accepted if request.sequence}
        full = without_room(tx, accepted)
        rows = new_rows(accepted, tx.now, parents.keys() | in_lines, full)
        if tx.flavor.insert_jobs(tx, rows) < len(rows):
            raise Overtaken
        self._keys.check_after(self._accepted)
        self._store_edges(accepted, ended)
        strike_new(tx, accepted)
        _wake(tx, accepted)

    def _parents(self, accepted: Iterable[NewJob]) -> dict[str, None]:
        """Return every named parent. A parent in the same call must come earlier."""
        parents: dict[str, None] = {}
        position = {job_id: index for index, job_id in enumerate(self._accepted)}
        for request in accepted:
            for after in request.after:
                parent = self._stands_for.get(after.job_id, after.job_id)
                if position.get(parent, -1) >= position[request.id]:
                    raise NotFound(
                        f"job {request.id} comes after {parent}, which the same call enqueues later"
                    )
                parents[parent] = None
        return parents

    def _store_edges(self, accepted: Sequence[NewJob], ended: Mapping[str, JobStatus]) -> None:
        """Store the edges of all requests by one statement, and the handovers by another."""
        found = [
            (request, parent, on_failure)
            for request in accepted
            for parent, on_failure in self._rules(request).items()
        ]
        if not found:
            return
        self._tx.execute(
            _INSERT_EDGES,
            [
                {
                    "child_id": request.id,
                    "parent_id": parent,
                    "child_queue": request.queue,
                    "on_failure": on_failure,
                    "link": TOLD if parent in ended else LIVE,
                }
                for request, parent, on_failure in found
            ],
        )
        news = [
            {
                "queue": request.queue,
                "child_id": request.id,
                "parent_id": parent,
                "parent_status": ended[parent].value,
                "on_failure": on_failure,
            }
            for request, parent, on_failure in found
            if parent in ended
        ]
        if news:
            self._tx.execute(_INSERT_HANDOVERS, news)
            self._tx.wake_handover()

    def _rules(self, request: NewJob) -> dict[str, str]:
        """Return what a failure of each parent means."""
        rules: dict[str, str] = {}
        for after in request.after:
            parent, word = self._stands_for.get(after.job_id, after.job_id), str(after.on_failure)
            is_named = word in LINE_RULES and parent in rules
            rules[parent] = named_in_line(rules[parent]) if is_named else word
        return rules


def new_rows(
    requests: Sequence[NewJob], now: int, parents: Container[str] = (), full: Collection[Key] = ()
) -> list[dict[str, object]]:
    """Return the rows of requests, in the same order in every call.

    So two batches with the same keys never wait for each other.

    :param full: keys of limits whose jobs are stored on hold
    """
    if len(requests) > 1:
        requests = sorted(requests, key=place_of)
    rows = [new_job_values(each, now, has_children=each.id in parents) for each in requests]
    if full:
        for row, each in zip(rows, requests, strict=True):
            row["hold"] = hold_of(each, full)
    return rows


def note_new(tx: Tx, requests: Sequence[NewJob]) -> None:
    """Count requests that have been stored, and wake waiters."""
    counts: dict[str, int] = {}
    for request in requests:
        counts[request.queue] = counts.get(request.queue, 0) + 1
    for queue, count in counts.items():
        tx.count(queue, Cause.ENQUEUED, by=count)
    _wake(tx, requests)


def is_plain(request: NewJob) -> bool:
    """Return whether a row is all that there is to store."""
    return (
        request.unique is None
        and not request.after
        and request.sequence is None
        and request.struck is None
    )


def place_of(request: NewJob) -> tuple[str, str, str]:
    """Return the key of the order in which every call stores jobs."""
    return request.queue, "" if request.unique is None else request.unique.key, request.id


def _content(request: NewJob) -> tuple[str, str, str]:
    return request.kind, request.queue, request.payload


def _check_same(request: NewJob, fingerprint: str, content: tuple[str, str, str]) -> None:
    if fingerprint == REPLACED:
        # Another request's content was stored under the id of the same queue since.
        same = content[1] == request.queue
    elif fingerprint and request.fingerprint:
        same = fingerprint == request.fingerprint
    else:
        same = content == _content(request)
    if not same:
        problem = f"the id {request.id} is stored already, with another content"
        raise Conflict(f"{problem}; give each job its own id")


def _read_stored(tx: Tx, ids: Iterable[JobId]) -> dict[str, Row[tuple[str, ...]]]:
    return {row.id: row for portion in portions(ids) for row in tx.rows(_STORED, {"ids": portion})}


def _read_parents(tx: Tx, ids: Iterable[str]) -> dict[str, JobStatus]:
    """Return the parents that have ended, with their status. The others are marked as having
    children."""
    wanted = sorted(ids)
    found = {
        row.id: JobStatus(row.status)
        for portion in portions(wanted)
        for row in tx.execute(_PARENTS, {"ids": portion})
    }
    _check_all(wanted, found)
    for portion in portions(found):
        tx.execute(_MARK_PARENTS, {"ids": portion})
    return {parent: status for parent, status in found.items() if status in TERMINAL}


def _check_all(parents: Iterable[str], there: Container[str]) -> None:
    for parent in sorted(parents):
        if parent not in there:
            problem = f"job {parent}, named in after, does not exist"
            raise NotFound(f"{problem}; it was never stored, or its retention is over")


def ensure_queues(tx: Tx, missing: set[str]) -> None:
    """Create the queues that this program has not met yet."""
    if missing:
        declare_queues(tx, missing)
        tx.ensured_queues |= missing


def _wake(tx: Tx, accepted: Iterable[NewJob]) -> None:
    due: dict[str, None] = {}
    for request in accepted:
        at_once = request.run_at is None and request.delay is None
        if (
            not request.after
            and not request.struck
            and (at_once or due_at(request, tx.now) <= tx.now)
        ):
            due[request.queue] = None
    tx.wake_queues(due)
