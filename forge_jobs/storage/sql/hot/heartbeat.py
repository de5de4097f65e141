"""The renewal of a pod's claims. A claim that has been lost is not renewed.

SQLite runs a statement for each claim, and writes the worker and the start of running jobs only.
Postgres renews all claims at once, and passes over rows that others have locked.
"""

from forge_jobs.storage.sql.base.tables import CLAIMED

# -- SQLite ----------------------------------------------------------------------------------

RENEW = f"""
    UPDATE forge_jobs SET heartbeat_at = :now
    WHERE id = :job AND token = :held AND {CLAIMED}
"""
RENEW_RUNNING = f"""
    UPDATE forge_jobs
    SET heartbeat_at = :now, worker_id = :worker, started_at = coalesce(started_at, :now)
    WHERE id = :job AND token = :held AND {CLAIMED}
"""

# -- Postgres --------------------------------------------------------------------------------

# A locked row is in use: the claim counts as held, and the search for stale claims skips the row
# too.
RENEW_FREE = f"""
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
