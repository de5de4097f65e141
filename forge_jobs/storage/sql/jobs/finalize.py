"""Ends of claims: finalize, release and revive apply a transition under the claim's token."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import BigInteger, bindparam, func, literal, select, text, true, update

from forge_jobs.clock import duration_us, from_us
from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import TERMINAL, Cause, Claim, JobStatus
from forge_jobs.model.transitions import (
    Cooldown,
    Finalization,
    Occurrence,
    Revival,
    StaleClaim,
    StaleClaims,
    Transition,
)
from forge_jobs.storage.salvage import counted
from forge_jobs.storage.sql.base.job_rows import JobRow, append_error
from forge_jobs.storage.sql.base.lists import one_of
from forge_jobs.storage.sql.base.row_locks import PAUSES_S, Lockable, pause
from forge_jobs.storage.sql.base.tables import CLAIMED, jobs
from forge_jobs.storage.sql.base.transaction import REVIVALS, Tx
from forge_jobs.storage.sql.config.queues import start_cooldown
from forge_jobs.storage.sql.fleet.noted_beats import is_noted, noted_since
from forge_jobs.storage.sql.jobs.children import tell_children
from forge_jobs.storage.sql.jobs.endings import (
    are_plain_successes,
    begin_again,
    is_plain_success,
    leave_and_drop,
)

_NOW: Any = bindparam("now", type_=BigInteger)
_SILENT_US: Any = bindparam("silent_us", type_=BigInteger)

_CURRENT = (
    select(
        jobs.c.id,
        jobs.c.queue,
        jobs.c.status,
        jobs.c.token,
        jobs.c.settled_token,
        jobs.c.attempt,
        jobs.c.crashes,
        jobs.c.snoozes,
        jobs.c.snoozed_at,
        jobs.c.run_at,
        jobs.c.heartbeat_at,
        jobs.c.host_id,
        jobs.c.cancel_requested,
        jobs.c.has_children,
        jobs.c.result,
        jobs.c.result_ttl_us,
        jobs.c.result_expires_at,
        jobs.c.errors,
        *(jobs.c.limit_name, jobs.c.limit_key),
    )
    .where(one_of(jobs.c.id, "ids"))
    # In id order, as every write of many jobs, so that two of them never wait for each other.
    .order_by(jobs.c.id)
)
CLAIMED_JOBS = Lockable(_CURRENT)
"""The jobs of claims, with the columns that their ends need."""

_SETTLE = (
    update(jobs)
    .where(jobs.c.id == bindparam("job"))
    .values(
        status=bindparam("new_status"),
        cause=bindparam("new_cause"),
        run_at=bindparam("new_run_at"),
        finished_at=bindparam("new_finished_at"),
        attempt=bindparam("new_attempt"),
        crashes=bindparam("new_crashes"),
        snoozes=bindparam("new_snoozes"),
        snoozed_at=bindparam("new_snoozed_at"),
        rate_limit=bindparam("new_rate_limit"),
        hold=bindparam("new_hold"),
        settled_token=bindparam("new_settled_token"),
        cancel_requested=False,
        result=bindparam("new_result"),
        result_expires_at=bindparam("new_result_expires_at"),
        errors=bindparam("new_errors"),
        error_group=func.coalesce(bindparam("new_error_group"), jobs.c.error_group),
    )
)
_silent = (
    select(
        jobs.c.id,
        jobs.c.queue,
        jobs.c.token,
        jobs.c.kind,
        jobs.c.host_id,
        jobs.c.attempt,
        jobs.c.max_attempts,
        jobs.c.crashes,
        jobs.c.started_at,
        jobs.c.heartbeat_at,
        jobs.c.cancel_requested,
    )
    .where(text(CLAIMED), jobs.c.heartbeat_at <= _NOW - _SILENT_US, ~is_noted(_SILENT_US))
    .order_by(jobs.c.heartbeat_at, jobs.c.id)
    .limit(bindparam("count", type_=BigInteger))
    .subquery("silent")
)
# One row with the time alone when no claim is stale.
STALE = (
    select(_NOW.label("now"), *_silent.c)
    .select_from(select(literal(1)).subquery("moment").outerjoin(_silent, true()))
    .order_by(_silent.c.heartbeat_at, _silent.c.id)
)
"""Takes ``silent_us``, ``count`` and ``now``, for :func:`stale_of`."""

_CANCELLED = Transition(status=JobStatus.CANCELLED, cause=Cause.CANCELLED)
_RELEASED = Transition(status=JobStatus.PENDING, cause=Cause.RELEASED, delay=None, hand_back=True)


@dataclass(frozen=True)
class _Mode:
    """The differences of the three ways to end a claim.

    :param by_owner: a repeat is known by the token, which a revival does not set. A locked job is
        set aside, and counts as in use for a revival
    :param keep_result: the stored result stays, whatever the transition has
    :param cancel_spares_done: success stands against a cancel
    """

    by_owner: bool
    keep_result: bool = False
    cancel_spares_done: bool = True


_FINALIZE = _Mode(by_owner=True)
_RELEASE = _Mode(by_owner=True, keep_result=True)
_REVIVE = _Mode(by_owner=False, cancel_spares_done=False)


def finalize(tx: Tx, finalizations: Sequence[Finalization]) -> list[bool | None]:
    """See ``JobStore.finalize``. In a caller's transaction locked jobs are waited for."""
    items = [(one.claim, one.transition) for one in finalizations]
    # A caller's snapshot may be older than the claim: then only a locked row tells.
    if not tx.is_callers and are_plain_successes(finalizations):
        return _succeed(tx, items)
    return _settle(tx, items, _FINALIZE)


def _succeed(tx: Tx, items: Sequence[tuple[Claim, Transition]]) -> list[bool | None]:
    ended = [*tx.flavor.succeed(tx, items)]
    done = {row.id for row in ended}
    rest = [item for item in items if item[0].job_id not in done] if len(done) < len(items) else []
    rows, kept = _not_ended(tx, rest) if rest else ({}, [])
    for seconds in PAUSES_S:
        if not kept:
            break
        # A claim that holds a job which was not ended: the job is locked, most often by a beat.
        pause(tx, seconds)
        ended += tx.flavor.succeed(tx, kept)
        done = {row.id for row in ended}
        rest = [item for item in rest if item[0].job_id not in done]
        rows, kept = _not_ended(tx, rest)
    told = {row.id: JobStatus.DONE for row in ended if row.has_children}
    counts: defaultdict[tuple[str, str], int] = defaultdict(int)
    for row in ended:
        counts[row.queue, row.host_id] += 1
        if row.limit_name is not None:
            tx.free(row.queue, row.limit_name, row.limit_key)
    for (queue, host_id), count in counts.items():
        tx.count(queue, Cause.SUCCEEDED, host_id, by=count)
    if told:
        tell_children(tx, told)
    if not rest:
        return [True] * len(items)
    locked = {claim.job_id for claim, _ in kept}
    return [
        None
        if claim.job_id in locked
        else claim.job_id in done or _is_repeat(rows.get(claim.job_id), claim)
        for claim, _ in items
    ]


def _not_ended(
    tx: Tx, items: Sequence[tuple[Claim, Transition]]
) -> tuple[Mapping[str, JobRow], list[tuple[Claim, Transition]]]:
    """Return the jobs as committed, and the items that still hold theirs."""
    # A lost claim stays lost, so no lock is needed to see whether the item is a repeat.
    rows = CLAIMED_JOBS.read(tx, [claim.job_id for claim, _ in items])
    kept = [item for item in items if is_current(rows.get(item[0].job_id), item[0])]
    return rows, kept if tx.flavor.locks_rows else []


def release(tx: Tx, claims: Sequence[Claim]) -> list[bool | None]:
    """See ``JobStore.release``."""
    return _settle(tx, [(claim, _RELEASED) for claim in claims], _RELEASE)


def revive(tx: Tx, revivals: Sequence[Revival], stale_after: timedelta) -> list[bool]:
    """See ``JobStore.revive``."""
    tx.flavor.lock(tx.connection, REVIVALS, shared=True)
    silent_since = tx.now - duration_us(stale_after)
    # No beat can be recorded from here on, see the lock.
    noted = noted_since(tx, [one.claim.job_id for one in revivals], silent_since)
    outcomes = _settle(
        tx,
        [(one.claim, one.transition) for one in revivals],
        _REVIVE,
        lambda row: _is_silent(row, silent_since) and (row.id, row.token) not in noted,
    )
    return [outcome is True for outcome in outcomes]


def _is_silent(row: JobRow, since: int) -> bool:
    # A value that is no number belongs to a spoilt record, for which no owner has beaten.
    return not isinstance(row.heartbeat_at, int) or row.heartbeat_at <= since


def stale_claims(tx: Tx, stale_after: timedelta, limit: int) -> StaleClaims:
    """See ``JobStore.stale_claims``."""
    at = {"silent_us": duration_us(stale_after), "count": limit, "now": tx.now}
    return stale_of(tx.execute(STALE, at).all())


def stale_of(rows: Sequence[Any]) -> StaleClaims:
    """Return the stale claims in the rows of :data:`STALE`."""
    found = (
        StaleClaim(
            claim=Claim(row.queue, row.id, row.token, HostId(row.host_id)),
            kind=row.kind,
            attempt=counted(row.attempt),
            max_attempts=None if row.max_attempts is None else counted(row.max_attempts),
            crashes=counted(row.crashes),
            started=row.started_at is not None,
            cancel_requested=bool(row.cancel_requested),
        )
        for row in rows
        if row.id is not None
    )
    return StaleClaims(found, read_at={"": from_us(rows[0].now)})


def is_current(row: JobRow | None, claim: Claim) -> bool:
    """Return whether the claim still holds its job."""
    return (
        row is not None
        and row.status == JobStatus.IN_PROGRESS.value
        and row.token == claim.token
        and row.host_id == claim.host_id
        and row.queue == claim.queue
    )


def _settle(
    tx: Tx,
    items: Sequence[tuple[Claim, Transition]],
    mode: _Mode,
    still: Callable[[JobRow], bool] = lambda _: True,
) -> list[bool | None]:
    if not items:
        return []
    ids = [claim.job_id for claim, _ in items]
    rows = CLAIMED_JOBS.lock(tx, ids) if mode.by_owner else CLAIMED_JOBS.lock_free(tx, ids)
    batch = _Batch(tx, mode)
    outcomes: list[bool | None] = []
    for claim, transition in items:
        row = rows.get(claim.job_id)
        if is_current(rows.kept.get(claim.job_id), claim):
            outcomes.append(None)
        elif claim in batch.ended:
            # The second of two equal items: a repeat for the owner, too late for a reaper.
            outcomes.append(mode.by_owner)
        elif row is not None and is_current(row, claim) and still(row):
            batch.add(claim, row, transition)
            outcomes.append(True)
        else:
            outcomes.append(mode.by_owner and _is_repeat(row or rows.kept.get(claim.job_id), claim))
    batch.write()
    return outcomes


def _is_repeat(row: JobRow | None, claim: Claim) -> bool:
    return (
        row is not None
        and row.queue == claim.queue
        and claim.token > 0
        and row.settled_token == claim.token
        # The pod of the last claim stays in the row, so it is known until the next claim.
        and (row.token != claim.token or row.host_id == claim.host_id)
    )


def _due_again(row: JobRow, delay: timedelta | None, now: int) -> int:
    # The job was due when claimed. A due time ahead means that the clock went back since.
    if delay is not None:
        return now + duration_us(delay)
    return min(row.run_at, now) if isinstance(row.run_at, int) else now


class _Batch:
    """The ends of one call, written together."""

    def __init__(self, tx: Tx, mode: _Mode) -> None:
        self.ended: set[Claim] = set()
        self._tx = tx
        self._mode = mode
        self._rows: list[tuple[JobRow, JobStatus]] = []
        self._updates: list[dict[str, Any]] = []
        self._plain: defaultdict[HostId, list[tuple[Claim, Transition]]] = defaultdict(list)
        self._cooldowns: list[tuple[str, Cooldown]] = []
        self._begun: list[tuple[str, Occurrence, int | None]] = []

    def add(self, claim: Claim, row: JobRow, wished: Transition) -> None:
        tx = self._tx
        transition = self._in_force(row, wished)
        status, cause, run_at = transition.status, transition.cause, row.run_at
        if status not in TERMINAL:
            run_at = _due_again(row, transition.delay, tx.now)
        self.ended.add(claim)
        self._rows.append((row, status))
        tx.count(row.queue, cause, row.host_id)
        tx.free(row.queue, row.limit_name, row.limit_key)
        if transition.cooldown is not None:
            self._cooldowns.append((row.queue, transition.cooldown))
        if status not in TERMINAL and run_at <= tx.now and transition.hold is None:
            tx.wake_queue(row.queue)
        if self._mode.by_owner and is_plain_success(transition):
            self._plain[claim.host_id].append((claim, transition))
            return
        if transition.again is not None:
            self._begun.append((row.id, transition.again, run_at if transition.delay else None))
        # The end of a spoilt record must be stored all the same, and so must the other ends.
        attempt, crashes, snoozes = map(counted, (row.attempt, row.crashes, row.snoozes))
        is_first_snooze = transition.count_snooze and not snoozes
        self._updates.append(
            {
                "job": row.id,
                "new_status": status.value,
                "new_cause": cause.value,
                "new_run_at": run_at,
                "new_finished_at": tx.now if status in TERMINAL else None,
                "new_attempt": max(0, attempt - transition.hand_back),
                "new_crashes": crashes + transition.count_crash,
                "new_snoozes": snoozes + transition.count_snooze,
                "new_snoozed_at": tx.now if is_first_snooze else row.snoozed_at,
                "new_rate_limit": transition.rate_limit,
                "new_hold": transition.hold and transition.hold.value,
                "new_settled_token": row.token if self._mode.by_owner else row.settled_token,
                **self._texts(row, transition),
            }
        )

    def _in_force(self, row: JobRow, wished: Transition) -> Transition:
        """Return the wished transition, or the end of a job that was asked to cancel."""
        spared = self._mode.cancel_spares_done and wished.status is JobStatus.DONE
        if not row.cancel_requested or spared:
            return wished
        return Transition(
            status=_CANCELLED.status,
            cause=_CANCELLED.cause,
            hand_back=wished.hand_back,
            count_snooze=wished.count_snooze,
            count_crash=wished.count_crash,
            error=wished.error,
            cooldown=wished.cooldown,
        )

    def _texts(self, row: JobRow, transition: Transition) -> dict[str, Any]:
        now = self._tx.now
        result, expires_at = row.result, row.result_expires_at
        if not self._mode.keep_result:
            result, expires_at = transition.result, None
            if result is not None and row.result_ttl_us is not None:
                expires_at = now + row.result_ttl_us
        error = transition.error
        return {
            "new_result": result,
            "new_result_expires_at": expires_at,
            "new_errors": row.errors if error is None else append_error(row.errors, error, now),
            "new_error_group": (error.error_group or None) if error is not None else None,
        }

    def write(self) -> None:
        tx = self._tx
        for plain in self._plain.values():
            tx.flavor.succeed(tx, plain)
        if self._updates:
            tx.execute(_SETTLE, self._updates)
        if self._begun:
            begin_again(tx, self._begun)
        for queue, cooldown in sorted(self._cooldowns, key=lambda pair: pair[0]):
            start_cooldown(tx, queue, cooldown)
        ended = [(row, status) for row, status in self._rows if status in TERMINAL]
        if ended:
            leave_and_drop(tx, ended)
            tell_children(tx, {row.id: status for row, status in ended if row.has_children})
