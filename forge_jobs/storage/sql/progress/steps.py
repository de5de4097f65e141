"""Checkpoints of jobs, and steps that were taken in transactions of handlers."""

from typing import Any

from sqlalchemy import select

from forge_jobs.errors import Conflict
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Claim, JobStatus
from forge_jobs.storage.sql.base.lists import one_of
from forge_jobs.storage.sql.base.tables import jobs
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.progress.tables import CHECKPOINT, steps

_OWNER = select(jobs.c.queue, jobs.c.status, jobs.c.token, jobs.c.host_id).where(
    one_of(jobs.c.id, "ids")
)
# Against a removal of the job only: beats and ends take a lock that this one lets through.
_KEPT_OWNER = _OWNER.with_for_update(read=True, key_share=True, skip_locked=True)
_AWAITED_OWNER = _OWNER.with_for_update(read=True, key_share=True)
_CHECKPOINT = select(steps.c.value).where(one_of(steps.c.job_id, "ids"), steps.c.step == CHECKPOINT)


def save_checkpoint(tx: Tx, claim: Claim, text: str) -> bool | None:
    """See ``JobStore.save_checkpoint``."""
    ids = {"ids": [claim.job_id]}
    owner = tx.execute(_KEPT_OWNER, ids).one_or_none()
    if owner is None:
        return None if tx.execute(_OWNER, ids).one_or_none() is not None else False
    if not _is_current(owner, claim):
        return False
    tx.put(tx.flavor.insert_replace(steps, ("job_id", "step")), [_row(tx, claim, CHECKPOINT, text)])
    return True


def checkpoint(tx: Tx, job_id: JobId) -> str | None:
    """See ``JobStore.checkpoint``."""
    value: str | None = tx.execute(_CHECKPOINT, {"ids": [job_id]}).scalar_one_or_none()
    return value


def first_time(tx: Tx, claim: Claim, step: str) -> bool:
    """See ``JobStore.first_time``."""
    owner = tx.execute(_AWAITED_OWNER, {"ids": [claim.job_id]}).one_or_none()
    if owner is None or not _is_current(owner, claim):
        raise Conflict(f"the claim of job {claim.job_id} was lost; roll back")
    insert = tx.flavor.insert_ignore(steps).returning(steps.c.step)
    return bool(tx.execute(insert, [_row(tx, claim, step, None)]).scalars().all())


def _is_current(owner: Any, claim: Claim) -> bool:
    return (owner.queue, owner.status, owner.token, owner.host_id) == (
        claim.queue,
        JobStatus.IN_PROGRESS.value,
        claim.token,
        claim.host_id,
    )


def _row(tx: Tx, claim: Claim, step: str, value: str | None) -> dict[str, object]:
    return {
        "job_id": claim.job_id,
        "step": step,
        "token": claim.token,
        "at": tx.now,
        "value": value,
    }
