"""Beats for claims whose jobs somebody's transaction has locked.

A beat renews a claim in its job, and waits for nobody: a locked job is passed by. What the beat
would have written there is noted here, so that nobody takes the claim for silent when the lock is
gone.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from sqlalchemy import BigInteger, bindparam, delete, exists, select, update

from forge_jobs.clock import duration_us
from forge_jobs.model.jobs import Claim
from forge_jobs.storage.set_back import TOLERANCE_US
from forge_jobs.storage.sql.base.lists import one_of
from forge_jobs.storage.sql.base.tables import jobs, noted_beats
from forge_jobs.storage.sql.base.transaction import Tx

_KEPT_US = duration_us(timedelta(days=1))
"""No lease is as long."""

_NOW: Any = bindparam("now", type_=BigInteger)
_OLD = (
    select(noted_beats.c.job_id)
    .where(noted_beats.c.beat_at < bindparam("before"))
    .with_for_update(skip_locked=True)
)
_FORGET = delete(noted_beats).where(noted_beats.c.job_id.in_(_OLD))
_SINCE = select(noted_beats.c.job_id, noted_beats.c.token).where(
    one_of(noted_beats.c.job_id, "ids"), noted_beats.c.beat_at > bindparam("since")
)
_AHEAD = (
    select(noted_beats.c.job_id)
    .where(noted_beats.c.beat_at > _NOW + TOLERANCE_US)
    .with_for_update(key_share=True, skip_locked=True)
)
_BRING_BACK = (
    update(noted_beats).where(noted_beats.c.job_id.in_(_AHEAD)).values(beat_at=bindparam("now"))
)


def is_noted(silent_us: Any) -> Any:
    """The condition that the claim of a job has been beaten for, though the job was locked.

    :param silent_us: no longer than this ago, at the parameter ``now``
    """
    return exists().where(
        noted_beats.c.job_id == jobs.c.id,
        noted_beats.c.token == jobs.c.token,
        noted_beats.c.beat_at > _NOW - silent_us,
    )


def note(tx: Tx, claims: Iterable[Claim]) -> None:
    """Note a beat for each of the claims, of which there are some."""
    tx.put(
        tx.flavor.insert_replace(noted_beats, ["job_id"]),
        [
            {"job_id": claim.job_id, "token": claim.token, "beat_at": tx.now}
            for claim in sorted(claims, key=lambda claim: claim.job_id)
        ],
    )
    tx.execute(_FORGET, {"before": tx.now - _KEPT_US})


def noted_since(tx: Tx, ids: Iterable[str], since: int) -> set[tuple[str, int]]:
    """Job and token of the claims that a beat was noted for after ``since``."""
    rows = tx.execute(_SINCE, {"ids": sorted(set(ids)), "since": since})
    return {(row.job_id, row.token) for row in rows}


def bring_back_notes(tx: Tx) -> None:
    """Let notes dated ahead count from now: the clock has been set back."""
    tx.execute(_BRING_BACK, {"now": tx.now})
