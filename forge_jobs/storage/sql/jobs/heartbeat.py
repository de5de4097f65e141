"""The heartbeat of a pod, and the record of a start."""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import bindparam, func, select, text, update

from forge_jobs.clock import from_us
from forge_jobs.errors import Locked
from forge_jobs.model.jobs import Claim
from forge_jobs.model.processes import Beat, ClaimState, HeldClaim, PodLease
from forge_jobs.storage.sql.base.job_rows import JobRow
from forge_jobs.storage.sql.base.tables import CLAIMED, jobs
from forge_jobs.storage.sql.base.transaction import REVIVALS, Tx
from forge_jobs.storage.sql.fleet.noted_beats import note
from forge_jobs.storage.sql.fleet.pods import queue_beats, renew_lease
from forge_jobs.storage.sql.jobs.finalize import CLAIMED_JOBS, is_current

_OWNED = select(jobs.c.id, jobs.c.queue, jobs.c.token, jobs.c.cancel_requested).where(
    text(CLAIMED), jobs.c.host_id == bindparam("host")
)
_START = (
    update(jobs)
    .where(jobs.c.id == bindparam("job"))
    .values(started_at=func.coalesce(jobs.c.started_at, bindparam("now")))
)


def heartbeat(tx: Tx, lease: PodLease, claims: Sequence[HeldClaim], lease_for: timedelta) -> Beat:
    """See ``JobStore.heartbeat``."""
    renewed = renew_lease(tx, lease, lease_for)
    # Before the renewal locks the jobs: nothing ends them while thousands of queues are read.
    queues = queue_beats(tx, lease)
    owned = _owned(tx, lease)
    states = {held.claim: _state(owned.get(held.claim)) for held in claims}
    locked = _renew(tx, [held for held in claims if states[held.claim] is not ClaimState.LOST])
    if locked:
        # A user's transaction has locked the rest, and is not waited for: these claims count as
        # held. Or a revival has, which is over in a moment, so its end is seen here.
        tx.flavor.lock(tx.connection, REVIVALS)
        locked = _renew(tx, locked)
        owned = _owned(tx, lease)
        states |= {held.claim: _state(owned.get(held.claim)) for held in claims}
        kept = [held.claim for held in locked if states[held.claim] is not ClaimState.LOST]
        if kept:
            note(tx, kept)
    return Beat(
        lease_held=renewed.is_held,
        claims=states,
        unknown=tuple(claim for claim in owned if claim not in states),
        queues=queues,
        handovers=renewed.handovers,
        letters=renewed.letters,
        requests=renewed.requests,
        now=from_us(tx.now),
    )


def _owned(tx: Tx, lease: PodLease) -> dict[Claim, JobRow]:
    return {
        Claim(row.queue, row.id, row.token, lease.host_id): row
        for row in tx.execute(_OWNED, {"host": lease.host_id})
    }


def _state(row: JobRow | None) -> ClaimState:
    if row is None:
        return ClaimState.LOST
    return ClaimState.CANCEL_REQUESTED if row.cancel_requested else ClaimState.HELD


def _renew(tx: Tx, claims: Sequence[HeldClaim]) -> list[HeldClaim]:
    """Renew the claims. Return the claims whose jobs another transaction has locked."""
    renewed = tx.flavor.renew_claims(
        tx,
        [
            {"job": held.claim.job_id, "held": held.claim.token, "worker": held.worker_id}
            for held in claims
        ],
    )
    return [held for held in claims if held.claim.job_id not in renewed]


def record_start(tx: Tx, claims: Sequence[Claim]) -> list[bool]:
    """See ``JobStore.record_start``."""
    rows = CLAIMED_JOBS.lock(tx, [claim.job_id for claim in claims])
    if rows.kept:
        raise Locked("an open transaction holds a job that is about to start")
    outcomes = [is_current(rows.get(claim.job_id), claim) for claim in claims]
    started = [
        {"job": claim.job_id, "now": tx.now}
        for claim, current in zip(claims, outcomes, strict=True)
        if current
    ]
    if started:
        tx.execute(_START, started)
    return outcomes
