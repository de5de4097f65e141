"""Plain successes, the ends of most jobs: fenced, written and answered by one statement.

``{SET}`` is the same for both. SQLite gets the batch as one JSON text. Postgres gets an array for
each column, locks the jobs in id order, and skips or awaits jobs that others have locked.
"""

from forge_jobs.storage.sql.base.tables import CLAIMED

SET = """
    SET status = 'done', cause = 'succeeded', finished_at = :now, settled_token = job.token,
        cancel_requested = FALSE, result = item.result,
        result_expires_at = CASE WHEN item.result IS NOT NULL THEN :now + job.result_ttl_us END,
        payload = CASE trim(item.kept_for, 'PTDHMS0.') WHEN '' THEN '' ELSE job.payload END
"""
"""The assignments to ``job``, given an ``item``. Nothing is kept for an ISO 8601 duration whose
digits are all zero, in any spelling."""

# -- SQLite ----------------------------------------------------------------------------------

# The plus keeps the planner from the index of a pod's claims, which would be scanned once for each
# item.
SUCCEED = f"""
    WITH item AS (
        SELECT json_extract(given.value, '$[0]') AS id, queue.name AS queue,
            json_extract(given.value, '$[2]') AS token, json_extract(given.value, '$[3]') AS result,
            CASE WHEN json_valid(queue.retention)
                THEN json_extract(queue.retention, '$.done') END AS kept_for
        FROM json_each(:items) AS given
        JOIN forge_queues AS queue ON queue.name = json_extract(given.value, '$[1]')
    )
    UPDATE forge_jobs AS job
    {SET}
    FROM item
    WHERE job.id = item.id AND job.queue = item.queue AND job.token = item.token
        AND +job.host_id = :owner AND job.{CLAIMED}
    RETURNING id, queue, host_id, has_children, limit_name, limit_key
"""

# -- Postgres --------------------------------------------------------------------------------

# kept:  not read as JSON, because one invalid text would refuse the ends of all queues
# item:  the claims that hold their jobs, each looked up and locked by itself, in id order, which
#        one more join could change
# ended: a locked row stays as found, so the id is the only condition. With further conditions a
#        planner that knows of no claimed job would walk all claimed jobs for each id.
_STEPS = f"""
    kept AS MATERIALIZED (
        SELECT name, substring(retention FROM '"done" *: *"([^"]*)"') AS kept_for FROM forge_queues
        WHERE name = ANY (:queues)
    ), item AS MATERIALIZED (
        SELECT given.id, given.result, (
                SELECT kept_for FROM kept WHERE name = given.queue
            ) AS kept_for
        FROM (
            SELECT * FROM unnest(CAST(:ids AS text[]), CAST(:queues AS text[]),
                CAST(:tokens AS bigint[]), CAST(:results AS text[]))
                AS one (id, queue, token, result)
            ORDER BY id COLLATE "C"
        ) AS given
        CROSS JOIN LATERAL (
            SELECT 1 FROM forge_jobs
            WHERE id = given.id AND {{only}} AND (queue, token, host_id, status)
                IS NOT DISTINCT FROM (given.queue, given.token, :owner, 'in_progress')
            FOR NO KEY UPDATE {{locked}}
        ) AS held
    ), ended AS (
        UPDATE forge_jobs AS job
        {SET}
        FROM item WHERE job.id = item.id
        RETURNING job.id, job.queue, job.host_id, job.has_children, job.limit_name, job.limit_key
    )
"""


def success_steps(*, only: str = "true", locked: str = "") -> str:
    """Return the steps that end the jobs ``:ids`` from ``:now`` on, without the final SELECT.

    :param only: a condition of the jobs that may be ended
    :param locked: the clause for rows locked by other transactions. Empty: wait
    """
    return _STEPS.format(only=only, locked=locked)


SUCCEED_FREE = f"WITH {success_steps(locked='SKIP LOCKED')} SELECT * FROM ended"
"""Ends the jobs that no other transaction has locked."""
