"""Claims: the ready jobs of a queue, lowest priority first, then due time, then id.

The ready index holds no job that is held, blocked or claimed. Jobs in the index that a claim may
not take (not due yet, in a later priority) are skipped by seeking: priority by priority, and within
one only the range that is due. So 100,000 jobs scheduled for later cost a claim nothing.

A claim that meets a job of another pod's kind goes on by the index that begins with the kind. That
walk merges the due jobs of the kinds that the claim may take, and reads no further job of another.
"""

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from operator import attrgetter
from typing import Any

import msgspec

from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Demand
from forge_jobs.storage.salvage import number_or
from forge_jobs.storage.sql.base.job_rows import JobRow, Picked
from forge_jobs.storage.sql.base.tables import jobs
from forge_jobs.storage.sql.base.transaction import HotStatement, Tx
from forge_jobs.storage.sql.base.unreadable import Shapes, hold
from forge_jobs.storage.sql.hot import claim as hot
from forge_jobs.storage.sql.hot.permits import Permits
from forge_jobs.storage.sql.hot.turns import Turn, Turns
from forge_jobs.storage.sql.jobs.unknown_kinds import hold_unknown_kinds

CLAIMED_COUNTER = "claimed"

_LOOKS = 10
"""How often one claim looks for due jobs again, after some were put on hold or became ready."""

_UNREADABLE_PAGES = 5
"""How often one claim sets unreadable jobs aside, and looks again for jobs behind them."""

_encode = msgspec.json.encode
_GATE, _NEXT_LEVEL, _NEXT_DUE = map(HotStatement.of, (hot.GATE, hot.NEXT_LEVEL, hot.NEXT_DUE))
_HEAD, _HEAD_OF_KIND = map(HotStatement.of, (hot.HEAD, hot.HEAD_OF_KIND))
_WHOLE, _TAKE = map(HotStatement.of, (hot.WHOLE, hot.TAKE))
_SHAPES = Shapes([jobs.c[name] for name in hot.READ_WITH])


def claim(tx: Tx, queue: str, demand: Demand, lease: PodLease) -> Picked:
    """See ``Flavor.claim``."""
    worker_ids = demand.worker_ids
    gate = open_gate(tx, queue, lease) if demand.limit >= 1 else None
    if gate is None:
        return Picked([], is_cut=False)
    freed = tx.take_freed(queue) if tx.freed else []
    permits: Permits | None = None
    goes_on = False
    search = _Search(tx, queue, demand)
    if gate.is_opened or freed:
        # Jobs on hold may come before those that are ready.
        permits = Permits(tx, queue, demand.limit, freed, is_opened=bool(gate.is_opened))
    search.run()
    picked, is_cut = search.picked, search.is_cut
    if permits is None and gate.has_limits and any(row.limit_name for row in picked):
        permits = Permits(tx, queue, demand.limit)
    if permits is not None:
        picked, is_cut, goes_on = _within_limits(tx, queue, demand, permits, search)
    if picked:
        tx.rows(
            _TAKE,
            {
                "ids": _encode([row.id for row in picked]).decode(),
                "workers": _encode(worker_ids).decode(),
                "count": len(worker_ids),
                "host": lease.host_id,
                "now": tx.now,
            },
        )
        tx.count(queue, CLAIMED_COUNTER, lease.host_id, len(picked))
    return Picked(picked, is_cut, goes_on=goes_on)


def _within_limits(
    tx: Tx, queue: str, demand: Demand, permits: Permits, search: "_Search"
) -> tuple[list[JobRow], bool, bool]:
    """Return the jobs to take, where some may be of limits, whether more are due, and whether jobs
    were put on hold that may stand before others.

    :param search: has found the first due jobs
    """
    turns = Turns(tx, queue, demand, permits) if permits.shares else None
    if turns is not None:
        if not turns.drain():
            # Nothing is taken until the keys of all jobs that come first are known.
            turns.finish()
            permits.finish(())
            return [], True, True
        search = search.again()
    picked: list[JobRow] = []
    is_cut = True
    for look in range(_LOOKS):
        if look:
            search = search.again()
        if permits.admit(search.picked):
            picked, is_cut = search.picked, search.is_cut
            break
        picked = _decided(permits, search.picked)
        if permits.is_spent:
            break
    if turns is not None:
        turns.note(permits.turned)
        picked, is_cut = _in_turn(tx, demand, turns, picked, is_cut=is_cut)
    permits.finish({row.id for row in picked})
    is_cut |= permits.goes_on
    return picked, is_cut, is_cut and (bool(permits.parked) or permits.goes_on)


def _in_turn(
    tx: Tx, demand: Demand, turns: Turns, picked: list[JobRow], *, is_cut: bool
) -> tuple[list[JobRow], bool]:
    """Return the jobs to take, and whether more are due, with those on hold whose turn it is."""
    chosen = turns.choose()
    ids = _encode([turn.job_id for turn in chosen]).decode()
    read = {row.id: row for row in tx.rows(_WHOLE, {"ids": ids, "now": tx.now})} if chosen else {}
    unreadable = [row for row in read.values() if not _SHAPES.fits(row)]
    if unreadable:
        hold(tx, unreadable)
    spoilt = {row.id for row in unreadable}
    waiting = deque(turn for turn in chosen if turn.job_id not in spoilt)
    others = deque(picked)
    found: list[JobRow] = []
    taken: list[Turn] = []
    size = 0
    while (waiting or others) and len(found) < demand.limit:
        is_turn = not others or (
            waiting and waiting[0].place <= (others[0].priority, others[0].run_at)
        )
        row = read[waiting[0].job_id] if is_turn else others[0]
        if row.crashes and len(found) >= len(demand.worker_ids):
            (waiting if is_turn else others).popleft()
            continue
        more = len(row.payload.encode())
        if found and size + more > demand.max_bytes:
            is_cut = True
            break
        size += more
        found.append(row)
        if is_turn:
            taken.append(waiting.popleft())
        else:
            others.popleft()
    turns.take(taken)
    turns.finish()
    return found, is_cut or bool(unreadable) or (turns.is_cut and len(found) < demand.limit)


def _decided(permits: Permits, rows: Sequence[JobRow]) -> list[JobRow]:
    """Return the rows that may be taken, up to the first one about which nothing is known yet."""
    found: list[JobRow] = []
    for row in rows:
        if permits.may_take(row):
            found.append(row)
        elif row.id not in permits.parked:
            break
    return found


def next_due_in(tx: Tx, queue: str) -> timedelta | None:
    """Return the time until the next job of the queue falls due, None when there is none.

    Jobs that are due already do not count: a claim has just skipped them.
    """
    [(earliest,)] = tx.rows(_NEXT_DUE, {"queue": queue, "now": tx.now})
    # A value that is no number is a spoilt due time, which never comes.
    return timedelta(microseconds=earliest - tx.now) if isinstance(earliest, int) else None


_BELOW_ALL = -(2**31)


def open_gate(tx: Tx, queue: str, lease: PodLease) -> Any:
    """Return what is known of the queue, None where the pod may not claim."""
    gates = tx.rows(_GATE, {"queue": queue, "host": lease.host_id})
    if not gates:
        return None
    [gate] = gates
    now = tx.now
    is_open = (
        gate.epoch == lease.epoch
        and number_or(gate.lease_until, 0) > now
        and not gate.paused
        # An unreadable cool-down counts as none, as in the state of the queue.
        and number_or(gate.cooldown_until, 0) <= now
    )
    return gate if is_open else None


_START: dict[str, Any] = {"after_run_at": hot.EARLIEST, "after_id": ""}
_place = attrgetter("run_at", "id")


@dataclass
class _Part:
    """Jobs that one statement has found.

    :ivar rows: the jobs that may be taken
    :ivar kinds: of all jobs read
    :ivar unreadable: jobs whose record cannot be read
    :ivar passed_over: the last of all jobs read, when one of them may not be taken
    :ivar size: the bytes of all payloads that the claim has picked, with these
    :ivar is_cut: the next job does not fit
    """

    rows: list[JobRow] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    unreadable: list[JobRow] = field(default_factory=list)
    passed_over: JobRow | None = None
    size: int = 0
    is_cut: bool = False


class _Search:
    """The walk of one claim over the ready jobs of a queue."""

    def __init__(self, tx: Tx, queue: str, demand: Demand) -> None:
        self.picked: list[JobRow] = []
        self.is_cut = False
        self._tx = tx
        self._queue = queue
        self._demand = demand
        self._bytes = 0
        self._mine: frozenset[str] | None = None
        """The kinds to walk one by one, once a job of another kind was met."""

    def again(self) -> "_Search":
        """Return another walk from the first due job on."""
        search = _Search(self._tx, self._queue, self._demand)
        search.run()
        return search

    def run(self) -> None:
        level = _BELOW_ALL
        while self._wanted and not self.is_cut:
            at = {"queue": self._queue, "level": level}
            found = self._tx.rows(_NEXT_LEVEL, at)
            if not found:
                break
            [row] = found
            level = row.priority
            if isinstance(row.run_at, int | float) and row.run_at <= self._tx.now:
                self._take_level(level)

    def _take_level(self, level: int) -> None:
        at = {"queue": self._queue, "level": level, "now": self._tx.now}
        part = _Part(size=self._bytes)
        for _ in range(_UNREADABLE_PAGES):
            part = self._first(at)
            if not part.unreadable:
                break
            hold(self._tx, part.unreadable)
        self._take(at, part)

    def _first(self, at: dict[str, Any]) -> "_Part":
        """Return the first due jobs of a level."""
        if self._mine is None:
            part = self._read(_HEAD, {**at, "count": self._wanted})
            if part.kinds <= self._demand.kinds:
                return part
            self._know_kinds()
        return self._by_kind(at, _START)

    def _take(self, at: dict[str, Any], part: "_Part") -> None:
        self.picked += part.rows
        self._bytes = part.size
        self.is_cut = part.is_cut
        if part.passed_over is not None and not part.is_cut:
            # Go on behind rows some of which could not be taken, by kind.
            self._know_kinds()
            last = part.passed_over
            after = {"after_run_at": last.run_at, "after_id": last.id}
            self._take(at, self._by_kind(at, after, most_crashes=0))

    def _know_kinds(self) -> None:
        if self._mine is None:
            kinds = hold_unknown_kinds(self._tx, self._queue, self._demand.kinds)
            self._mine = kinds.mine

    def _by_kind(
        self, at: dict[str, Any], after: dict[str, Any], most_crashes: int = 2**31 - 1
    ) -> "_Part":
        """Return the first due jobs of a level that are of one of the claim's kinds."""
        kinds = self._mine
        if not kinds or not self._wanted:
            return _Part(size=self._bytes)
        first = self._wanted // len(kinds) + 1
        bounds = {**at, **after, "most_crashes": most_crashes}
        heads = [self._due_of({**bounds, "kind": kind}, first) for kind in kinds]
        merged = heapq.merge(*heads, key=_place)
        ids = [row.id for row, _ in zip(merged, range(self._wanted), strict=False)]
        return self._read(_WHOLE, {"ids": _encode(ids).decode(), "now": self._tx.now})

    def _due_of(self, at: dict[str, Any], size: int) -> Iterator[JobRow]:
        """Yield the due jobs of one kind in order, in pages, so that few are read and not taken."""
        while True:
            rows = self._tx.rows(_HEAD_OF_KIND, {**at, "count": size})
            yield from rows
            if len(rows) < size:
                return
            at = {**at, "after_run_at": rows[-1].run_at, "after_id": rows[-1].id}

    def _read(self, statement: HotStatement, values: dict[str, Any]) -> "_Part":
        """Return the jobs in their order, as long as they fit into one call."""
        part = _Part(size=self._bytes)
        workers = len(self._demand.worker_ids) - len(self.picked)

        def is_enough(block: Sequence[JobRow]) -> bool:
            for row in block:
                if not _SHAPES.fits(row):
                    part.unreadable.append(row)
                    continue
                part.kinds.add(row.kind)
                if row.crashes and len(part.rows) >= workers:
                    # A job that may kill the process must not share a claim with other jobs held
                    # ahead.
                    part.passed_over = row
                    continue
                payload: str = row.payload
                size = len(payload) if payload.isascii() else len(payload.encode())
                if part.size and part.size + size > self._demand.max_bytes:
                    part.is_cut = True
                    return True
                part.size += size
                part.rows.append(row)
            return False

        found = self._tx.rows(statement, values, is_enough)
        if part.passed_over is not None:
            part.passed_over = found[-1]
        return part

    @property
    def _wanted(self) -> int:
        return self._demand.limit - len(self.picked)
