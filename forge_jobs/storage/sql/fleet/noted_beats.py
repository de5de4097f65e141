"""Beats for claims whose jobs a caller's transaction has locked.

A beat renews a claim in the row of the job and never waits: a locked row is skipped. Such a beat is
recorded here instead, so that the claim does not count as silent once the lock is gone.
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
"""Longer than any lease."""

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
    """Return the condition that a beat of the job's claim was recorded while the job was locked.

    :param silent_us: how long ago at most, before the parameter ``now``
    """
    return exists().where(
        noted_beats.c.job_id == jobs.c.id,
        noted_beats.c.token == jobs.c.token,
        noted_beats.c.beat_at > _NOW - silent_us,
    )


def note(tx: Tx, claims: Iterable[Claim]) -> None:
    """Record a beat for each of the claims, of which there are some."""
    tx.put(
        tx.flavor.insert_replace(noted_beats, ["job_id"]),
        [
            {"job_id": claim.job_id, "token": claim.token, "beat_at": tx.now}
            for claim in sorted(claims, key=lambda claim: claim.job_id)
        ],
    )
    tx.execute(_FORGET, {"before": tx.now - _KEPT_US})


def noted_since(tx: Tx, ids: Iterable[str], since: int) -> set[tuple[str, int]]:
    """Return job and token of the claims with a beat recorded after ``since``."""
    rows = tx.execute(_SINCE, {"ids": sorted(set(ids)), "since": since})
    return {(row.job_id, row.token) for row in rows}


def bring_back_notes(tx: Tx) -> None:
    """Date recorded beats that lie ahead at now, after the clock has been set back."""
    tx.execute(_BRING_BACK, {"now": tx.now})
