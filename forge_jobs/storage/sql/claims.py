"""Claims: the ready jobs of a queue, lowest priority first, then due time, then id.

The ready index holds no job that is held, blocked or claimed. What it does hold but a claim may
not take (not due yet, in a later priority) is skipped by seeking: priority by priority, and within
one only the range that is due. So 100,000 jobs scheduled for later cost a claim nothing.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
from sqlalchemy import BindParameter, Select, bindparam, or_, select, text, tuple_, update

from forge_jobs.model.jobs import ClaimedJob, Hold, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Demand
from forge_jobs.storage.sql.job_rows import JobRow, claimed_job
from forge_jobs.storage.sql.tables import READY, jobs, pods, queues
from forge_jobs.storage.sql.transaction import Tx

CLAIMED_COUNTER = "claimed"

HOLD_BATCH = 1000
"""How many jobs of unknown kinds one claim puts aside, so that it stays short."""

_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode
_queue: BindParameter[str] = bindparam("queue")
_level: BindParameter[int] = bindparam("level")
_now: BindParameter[int] = bindparam("now")

_GATE = (
    select(pods.c.epoch, pods.c.lease_until, queues.c.paused, queues.c.cooldown_until)
    .select_from(pods)
    .join(queues, queues.c.name == _queue)
    .where(pods.c.host_id == bindparam("host"))
)
_NEXT_LEVEL = (
    select(jobs.c.priority, jobs.c.run_at)
    .where(jobs.c.queue == _queue, jobs.c.priority > _level, text(READY))
    .order_by(jobs.c.priority, jobs.c.run_at)
    .limit(1)
)
_NEXT_DUE = (
    select(jobs.c.run_at)
    .where(jobs.c.queue == _queue, jobs.c.priority == _level, jobs.c.run_at > _now, text(READY))
    .order_by(jobs.c.run_at)
    .limit(1)
)
_LIVE_KINDS = select(pods.c.kinds).where(pods.c.lease_until > _now)


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
        .with_for_update(skip_locked=True)
    )


_HEAD_COLUMNS = (
    jobs.c.id,
    jobs.c.queue,
    jobs.c.kind,
    jobs.c.payload,
    jobs.c.token,
    jobs.c.attempt,
    jobs.c.max_attempts,
    jobs.c.crashes,
    jobs.c.snoozes,
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
_kinds: BindParameter[Any] = bindparam("kinds", expanding=True)
_HEAD = _due(*_HEAD_COLUMNS)
_HEAD_OF_KINDS = _due(*_HEAD_COLUMNS).where(jobs.c.kind.in_(_kinds))
_HEAD_AFTER = _HEAD_OF_KINDS.where(
    jobs.c.crashes == 0,
    tuple_(jobs.c.run_at, jobs.c.id) > tuple_(bindparam("after_run_at"), bindparam("after_id")),
)
_UNKNOWN = _due(jobs.c.id).where(jobs.c.kind.in_(_kinds))
_PUT_ON_HOLD = (
    update(jobs)
    .where(jobs.c.id.in_(bindparam("ids", expanding=True)))
    .values(hold=Hold.UNKNOWN_KIND.value)
)
_TAKE = (
    update(jobs)
    .where(jobs.c.id == bindparam("job"))
    .values(
        status=JobStatus.IN_PROGRESS.value,
        attempt=jobs.c.attempt + 1,
        token=jobs.c.token + 1,
        host_id=bindparam("host"),
        worker_id=bindparam("worker"),
        claimed_at=_now,
        heartbeat_at=_now,
        started_at=None,
        finished_at=None,
    )
)


def claim(tx: Tx, queue: str, demand: Demand, lease: PodLease) -> list[ClaimedJob]:
    """See ``JobStore.claim``."""
    worker_ids = demand.worker_ids
    if demand.limit < 1 or not _is_open(tx, queue, lease):
        return []
    search = _Search(tx, queue, len(worker_ids), demand.limit, demand.kinds)
    picked = search.run()
    if not picked:
        return []
    workers = [*worker_ids[: len(picked)], *[""] * (len(picked) - len(worker_ids))]
    tx.execute(
        _TAKE,
        [
            {"job": row.id, "host": lease.host_id, "worker": worker, "now": tx.now}
            for row, worker in zip(picked, workers, strict=True)
        ],
    )
    tx.count(queue, CLAIMED_COUNTER, lease.host_id, len(picked))
    return [claimed_job(row) for row in picked]


def next_due_in(tx: Tx, queue: str) -> timedelta | None:
    """Until the next job of the queue that is not due yet falls due; None when there is none.

    Jobs that are due already do not count: a claim has just passed them over.
    """
    earliest: int | None = None
    for level, first_run_at in _levels(tx, queue):
        due: int | None = first_run_at
        if first_run_at <= tx.now:
            at = {"queue": queue, "level": level, "now": tx.now}
            due = tx.execute(_NEXT_DUE, at).scalar()
        if due is not None and (earliest is None or due < earliest):
            earliest = due
    return None if earliest is None else timedelta(microseconds=earliest - tx.now)


def _levels(tx: Tx, queue: str) -> "list[tuple[int, int]]":
    """The priorities in use among ready jobs, ascending, each with its earliest due time."""
    found: list[tuple[int, int]] = []
    level = _BELOW_ALL
    while (row := tx.execute(_NEXT_LEVEL, {"queue": queue, "level": level}).first()) is not None:
        level = row.priority
        found.append((level, row.run_at))
    return found


_BELOW_ALL = -(2**31)


def _is_open(tx: Tx, queue: str, lease: PodLease) -> bool:
    gate = tx.execute(_GATE, {"queue": queue, "host": lease.host_id}).first()
    return (
        gate is not None
        and gate.epoch == lease.epoch
        and gate.lease_until > tx.now
        and not gate.paused
        and (gate.cooldown_until is None or gate.cooldown_until <= tx.now)
    )


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
    _live_kinds: frozenset[str] | None = None
    _may_hold: int = HOLD_BATCH

    def run(self) -> list[JobRow]:
        level = _BELOW_ALL
        while len(self.picked) < self.limit:
            at = {"queue": self.queue, "level": level}
            row = self.tx.execute(_NEXT_LEVEL, at).first()
            if row is None:
                break
            level = row.priority
            if row.run_at <= self.tx.now:
                self._take_level(level)
        return self.picked

    def _take_level(self, level: int) -> None:
        at = {"queue": self.queue, "level": level, "now": self.tx.now, "count": self._wanted}
        rows = self.tx.execute(_HEAD, at).all()
        while strange := {row.kind for row in rows} - self.kinds:
            if not self._hold_unknown(at, strange):
                # Others know these kinds, or enough has been put aside for one claim.
                of_kinds = {**at, "kinds": sorted(self.kinds)}
                rows = self.tx.execute(_HEAD_OF_KINDS, of_kinds).all()
                break
            rows = self.tx.execute(_HEAD, at).all()
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
        self.picked.extend(rows)

    @property
    def _wanted(self) -> int:
        return self.limit - len(self.picked)

    def _hold_unknown(self, at: dict[str, Any], kinds: set[str]) -> bool:
        """Put jobs aside whose kind no live pod knows; whether there were any."""
        tx = self.tx
        if self._live_kinds is None:
            published = tx.execute(_LIVE_KINDS, {"now": tx.now}).scalars()
            self._live_kinds = frozenset(name for text in published for name in _decode_names(text))
        unknown = sorted(kinds - self._live_kinds)
        if not unknown or not self._may_hold:
            return False
        found = {**at, "kinds": unknown, "count": self._may_hold}
        ids = tx.execute(_UNKNOWN, found).scalars().all()
        tx.execute(_PUT_ON_HOLD, {"ids": ids})
        self._may_hold -= len(ids)
        return True
