"""The heartbeat of a pod, and the record of a start."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from sqlalchemy import bindparam, func, select, text, update

from forge_jobs.model.jobs import Claim
from forge_jobs.model.processes import Beat, ClaimState, HeldClaim, PodLease
from forge_jobs.storage.sql.job_rows import JobRow
from forge_jobs.storage.sql.procs import queue_beats, renew_lease
from forge_jobs.storage.sql.settle import current_rows, is_current
from forge_jobs.storage.sql.tables import CLAIMED, jobs
from forge_jobs.storage.sql.transaction import Tx

_OWNED = select(jobs.c.id, jobs.c.queue, jobs.c.token, jobs.c.cancel_requested).where(
    text(CLAIMED), jobs.c.host_id == bindparam("host")
)
_RENEW = (
    update(jobs)
    .where(jobs.c.id == bindparam("job"), jobs.c.token == bindparam("held"), text(CLAIMED))
    .values(heartbeat_at=bindparam("now"))
)
_RENEW_RUNNING = _RENEW.values(
    worker_id=bindparam("worker"), started_at=func.coalesce(jobs.c.started_at, bindparam("now"))
)
_START = (
    update(jobs)
    .where(jobs.c.id == bindparam("job"))
    .values(started_at=func.coalesce(jobs.c.started_at, bindparam("now")))
)


def heartbeat(tx: Tx, lease: PodLease, claims: Sequence[HeldClaim], lease_for: timedelta) -> Beat:
    """See ``JobStore.heartbeat``."""
    lease_held, handovers_wait = renew_lease(tx, lease, lease_for)
    owned = {
        Claim(row.queue, row.id, row.token): row
        for row in tx.execute(_OWNED, {"host": lease.host_id})
    }
    states = {held.claim: _state(owned.get(held.claim)) for held in claims}
    _renew(tx, claims, states)
    return Beat(
        lease_held=lease_held,
        claims=states,
        unknown=tuple(claim for claim in owned if claim not in states),
        queues=queue_beats(tx, lease),
        handovers=handovers_wait,
    )


def _state(row: JobRow | None) -> ClaimState:
    if row is None:
        return ClaimState.LOST
    return ClaimState.CANCEL_REQUESTED if row.cancel_requested else ClaimState.HELD


def _renew(tx: Tx, claims: Sequence[HeldClaim], states: Mapping[Claim, ClaimState]) -> None:
    current = [held for held in claims if states[held.claim] is not ClaimState.LOST]
    running = [
        {
            "job": held.claim.job_id,
            "held": held.claim.token,
            "worker": held.worker_id,
            "now": tx.now,
        }
        for held in current
        if held.worker_id
    ]
    ahead = [
        {"job": held.claim.job_id, "held": held.claim.token, "now": tx.now}
        for held in current
        if not held.worker_id
    ]
    if running:
        tx.execute(_RENEW_RUNNING, running)
    if ahead:
        tx.execute(_RENEW, ahead)


def record_start(tx: Tx, claims: Sequence[Claim]) -> list[bool]:
    """See ``JobStore.record_start``."""
    rows = current_rows(tx, claims)
    outcomes = [is_current(rows.get(claim.job_id), claim) for claim in claims]
    started = [
        {"job": claim.job_id, "now": tx.now}
        for claim, current in zip(claims, outcomes, strict=True)
        if current
    ]
    if started:
        tx.execute(_START, started)
    return outcomes
