"""Renews claims for a beat, without waiting for locks."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ARRAY, BigInteger, Text, bindparam, text

from forge_jobs.storage.sql.base.tables import CLAIMED
from forge_jobs.storage.sql.base.transaction import Tx

# A locked row is in use: its claim counts as held, and the search for stale claims skips the row
# too.
_RENEW = text(
    f"""
    WITH free AS (
        SELECT id FROM forge_jobs
        WHERE id = ANY (CAST(:job AS text[])) AND {CLAIMED}
        ORDER BY id
        FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE forge_jobs AS jobs
    SET heartbeat_at = :now,
        worker_id = CASE WHEN beat.worker = '' THEN jobs.worker_id ELSE beat.worker END,
        started_at = CASE
            WHEN beat.worker = '' THEN jobs.started_at ELSE coalesce(jobs.started_at, :now) END
    FROM unnest(CAST(:job AS text[]), CAST(:held AS bigint[]), CAST(:worker AS text[]))
        AS beat (job, held, worker)
    WHERE jobs.id = ANY (ARRAY(SELECT id FROM free))
        AND jobs.id = beat.job AND jobs.token = beat.held AND jobs.{CLAIMED}
    RETURNING jobs.id
    """
).bindparams(
    bindparam("job", type_=ARRAY(Text)),
    bindparam("held", type_=ARRAY(BigInteger)),
    bindparam("worker", type_=ARRAY(Text)),
    bindparam("now", type_=BigInteger),
)


def renew_claims(tx: Tx, renewals: Sequence[Mapping[str, Any]]) -> set[str]:
    """See ``Flavor.renew_claims``."""
    if not renewals:
        return set()
    columns = {name: [one[name] for one in renewals] for name in ("job", "held", "worker")}
    return set(tx.execute(_RENEW, {**columns, "now": tx.now}).scalars())
