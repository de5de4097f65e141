"""Claims: the ready jobs of a queue, lowest priority first, then due time, then id.

The ready index holds no job that is held, blocked or claimed. What it does hold but a claim may
not take (not due yet, in a later priority) is skipped by seeking: priority by priority, and within
one only the range that is due. So 100,000 jobs scheduled for later cost a claim nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
from sqlalchemy import BindParameter, Select, bindparam, func, or_, select, text, tuple_, update

from forge_jobs.model.jobs import Hold
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Demand
from forge_jobs.storage.salvage import UNREADABLE
from forge_jobs.storage.sql.job_rows import JobRow
from forge_jobs.storage.sql.lists import one_of
from forge_jobs.storage.sql.tables import READY, jobs, pods, queues, slots
from forge_jobs.storage.sql.transaction import KINDS, Often, Tx
from forge_jobs.storage.sql.unreadable import Shapes, hold

CLAIMED_COUNTER = "claimed"

HOLD_BATCH = 1000
"""How many jobs of unknown kinds one claim puts aside, so that it stays short."""

_UNREADABLE_PAGES = 5
"""How often one claim puts aside what it cannot read, and looks again what stands behind it."""

_encode = msgspec.json.encode
_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode
_queue: BindParameter[str] = bindparam("queue")
_level: BindParameter[int] = bindparam("level")
_now: BindParameter[int] = bindparam("now")

_GATE = Often(
    select(pods.c.epoch, pods.c.lease_until, queues.c.paused, queues.c.cooldown_until)
    .select_from(pods)
    .join(slots, (slots.c.host_id == pods.c.host_id) & (slots.c.epoch == pods.c.epoch))
    .join(queues, queues.c.name == slots.c.queue)
    .where(pods.c.host_id == bindparam("host"), slots.c.queue == _queue)
)
_NEXT_LEVEL = Often(
    select(jobs.c.priority, jobs.c.run_at)
    .where(jobs.c.queue == _queue, jobs.c.priority > _level, text(READY))
    .order_by(jobs.c.priority, jobs.c.run_at)
    .limit(1)
)
_LIVE_KINDS = select(pods.c.kinds).where(pods.c.lease_until > _now)


def _next_due() -> Select[Any]:
    """The least ``run_at`` to come, looked up once for each priority in use."""

    def lowest(*above: Any) -> Any:
        return (
            select(jobs.c.priority)
            .where(jobs.c.queue == _queue, *above, text(READY))
            .order_by(jobs.c.priority)
            .limit(1)
            .scalar_subquery()
        )

    levels = select(lowest().label("priority")).cte("levels", recursive=True)
    higher = lowest(jobs.c.priority > levels.c.priority)
    levels = levels.union_all(select(higher).where(levels.c.priority.is_not(None)))
    first = (
        select(jobs.c.run_at)
        .where(
            jobs.c.queue == _queue,
            jobs.c.priority == levels.c.priority,
            jobs.c.run_at > _now,
            text(READY),
        )
        .order_by(jobs.c.run_at)
        .limit(1)
        .scalar_subquery()
    )
    firsts = select(first.label("run_at")).select_from(levels).subquery("firsts")
    return select(func.min(firsts.c.run_at))


_NEXT_DUE = Often(_next_due())


def _due(*columns: Any) -> Select[Any]:
    return (
        select(*columns)
        .where(
            jobs.c.queue == _queue,
            jobs.c.priority == _level,
            jobs.c.run_at <= _now,
            text(READY),
            or_(jobs.c.expires_at.is_(None), jobs.c.expires_at > _now),
        )
        .order_by(jobs.c.run_at, jobs.c.id)
        .limit(bindparam("count"))
        # Concurrent claims pass each other by. SQLite has no such clause, and one writer.
        .with_for_update(key_share=True, skip_locked=True)
    )


_HEAD_COLUMNS = (
    jobs.c.id,
    jobs.c.queue,
    jobs.c.kind,
    jobs.c.payload,
    # That of the claim.
    func.max(jobs.c.token + 1, _now).label("token"),
    jobs.c.attempt,
    jobs.c.max_attempts,
    jobs.c.crashes,
    jobs.c.snoozes,
    jobs.c.snoozed_at,
    jobs.c.priority,
    jobs.c.timeout_us,
    jobs.c.tags,
    jobs.c.metadata,
    jobs.c.trace,
    jobs.c.run_at,
    jobs.c.enqueued_at,
    jobs.c.keep_result,
    jobs.c.cancel_requested,
    jobs.c.schedule,
)
_HEAD = Often(_due(*_HEAD_COLUMNS))
_SHAPES = Shapes(_HEAD_COLUMNS)
_HEAD_OF_KINDS = _due(*_HEAD_COLUMNS).where(one_of(jobs.c.kind, "kinds"))
_HEAD_AFTER = _HEAD_OF_KINDS.where(
    jobs.c.crashes == 0,
    tuple_(jobs.c.run_at, jobs.c.id) > tuple_(bindparam("after_run_at"), bindparam("after_id")),
)
_UNKNOWN = _due(jobs.c.id).where(one_of(jobs.c.kind, "kinds"))
_PUT_ON_HOLD = update(jobs).where(one_of(jobs.c.id, "ids")).values(hold=Hold.UNKNOWN_KIND.value)
_TAKE = Often(
    text(
        """
    UPDATE forge_jobs AS job
    SET status = 'in_progress', attempt = job.attempt + 1, token = max(job.token + 1, :now),
        host_id = :host,
        worker_id = coalesce(json_extract(:workers, '$[' || taken.key || ']'), ''),
        claimed_at = :now, heartbeat_at = :now, started_at = NULL, finished_at = NULL
    FROM json_each(:ids) AS taken
    WHERE job.id = taken.value
    """
    )
)


def claim(tx: Tx, queue: str, demand: Demand, lease: PodLease) -> list[JobRow]:
    """See ``Flavor.claim``."""
    worker_ids = demand.worker_ids
    if demand.limit < 1 or not _is_open(tx, queue, lease):
        return []
    search = _Search(tx, queue, len(worker_ids), demand.limit, demand.kinds)
    picked = search.run()
    if not picked:
        return []
    tx.rows(
        _TAKE,
        {
            "ids": _encode([row.id for row in picked]).decode(),
            "workers": _encode(worker_ids).decode(),
            "host": lease.host_id,
            "now": tx.now,
        },
    )
    tx.count(queue, CLAIMED_COUNTER, lease.host_id, len(picked))
    return picked


def next_due_in(tx: Tx, queue: str) -> timedelta | None:
    """Until the next job of the queue that is not due yet falls due; None when there is none.

    Jobs that are due already do not count: a claim has just passed them over.
    """
    [(earliest,)] = tx.rows(_NEXT_DUE, {"queue": queue, "now": tx.now})
    # What is no number is a spoilt due time, which never comes.
    return timedelta(microseconds=earliest - tx.now) if isinstance(earliest, int) else None


_BELOW_ALL = -(2**31)


def _is_open(tx: Tx, queue: str, lease: PodLease) -> bool:
    return any(
        gate.epoch == lease.epoch
        and gate.lease_until > tx.now
        and not gate.paused
        and (gate.cooldown_until is None or gate.cooldown_until <= tx.now)
        for gate in tx.rows(_GATE, {"queue": queue, "host": lease.host_id})
    )


class Strangers:
    """Jobs of kinds that no live pod knows, as one claim puts them aside."""

    def __init__(self, tx: Tx, queue: str) -> None:
        self._tx = tx
        self._queue = queue
        self._live_kinds: frozenset[str] | None = None
        self._may_hold = HOLD_BATCH

    def hold(self, level: int, kinds: Iterable[str]) -> bool:
        """Put due jobs of one priority aside whose kind nobody knows; whether there were any."""
        tx = self._tx
        if self._live_kinds is None:
            # A pod that registers meanwhile waits, and frees afterwards what is held here.
            tx.flavor.lock(tx.connection, KINDS, shared=True)
            published = tx.execute(_LIVE_KINDS, {"now": tx.now}).scalars().all()
            try:
                names = [name for text in published for name in _decode_names(text)]
            except UNREADABLE:
                # A pod whose record is spoilt may know any kind.
                self._may_hold = 0
                return False
            self._live_kinds = frozenset(names)
        unknown = sorted(set(kinds) - self._live_kinds)
        if not unknown or not self._may_hold:
            return False
        found = {"queue": self._queue, "level": level, "now": tx.now}
        ids = tx.execute(_UNKNOWN, {**found, "kinds": unknown, "count": self._may_hold})
        held = ids.scalars().all()
        tx.execute(_PUT_ON_HOLD, {"ids": held})
        self._may_hold -= len(held)
        return True


@dataclass
class _Search:
    """The walk of one claim over the ready jobs of a queue.

    :param workers: how many claims go to workers; those beyond are held ahead
    """

    tx: Tx
    queue: str
    workers: int
    limit: int
    kinds: frozenset[str]
    picked: list[JobRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._strangers = Strangers(self.tx, self.queue)

    def run(self) -> list[JobRow]:
        level = _BELOW_ALL
        while len(self.picked) < self.limit:
            at = {"queue": self.queue, "level": level}
            found = self.tx.rows(_NEXT_LEVEL, at)
            if not found:
                break
            [row] = found
            level = row.priority
            if isinstance(row.run_at, int | float) and row.run_at <= self.tx.now:
                self._take_level(level)
        return self.picked

    def _take_level(self, level: int) -> None:
        at = {"queue": self.queue, "level": level, "now": self.tx.now, "count": self._wanted}
        rows = self._head(at)
        while strange := {row.kind for row in rows} - self.kinds:
            if not self._strangers.hold(level, strange):
                # Others know these kinds, or enough has been put aside for one claim.
                of_kinds = {**at, "kinds": sorted(self.kinds)}
                rows = _readable(self.tx.execute(_HEAD_OF_KINDS, of_kinds).all())
                break
            rows = self._head(at)
        passed_over = False
        for row in rows:
            # What may kill its process must not take others' claims with it.
            if row.crashes and len(self.picked) >= self.workers:
                passed_over = True
            else:
                self.picked.append(row)
        if passed_over:
            self._take_after(at, rows[-1])

    def _take_after(self, at: dict[str, Any], last: JobRow) -> None:
        """Go on behind rows some of which could not be taken, with those that can be."""
        rows = self.tx.execute(
            _HEAD_AFTER,
            {
                **at,
                "count": self._wanted,
                "kinds": sorted(self.kinds),
                "after_run_at": last.run_at,
                "after_id": last.id,
            },
        )
        self.picked.extend(_readable(rows.all()))

    def _head(self, at: dict[str, Any]) -> list[JobRow]:
        """The first due jobs of a priority. Those that cannot be read are put aside."""
        for _ in range(_UNREADABLE_PAGES):
            rows = self.tx.rows(_HEAD, at)
            readable = _readable(rows)
            if len(readable) == len(rows):
                break
            hold(self.tx, [row for row in rows if not _SHAPES.fits(row)])
        return readable

    @property
    def _wanted(self) -> int:
        return self.limit - len(self.picked)


def _readable(rows: Sequence[JobRow]) -> list[JobRow]:
    return [row for row in rows if _SHAPES.fits(row)]
