"""Plain successes on Postgres: one statement locks the jobs in id order and ends them."""

from collections.abc import Sequence

from sqlalchemy import ARRAY, BigInteger, Text, bindparam, text

from forge_jobs.model.jobs import Claim
from forge_jobs.model.transitions import Transition
from forge_jobs.storage.sql.base.job_rows import Succeeded
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.jobs.endings import SUCCEED, columns, owner_of

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
        {SUCCEED}
        FROM item WHERE job.id = item.id
        RETURNING job.id, job.queue, job.host_id, job.has_children
    )
"""


def success_steps(*, only: str = "true", locked: str = "") -> str:
    """Return the steps that end the jobs ``:ids`` from ``:now`` on, without the final SELECT.

    :param only: a condition of the jobs that may be ended
    :param locked: the clause for rows locked by other transactions. Empty: wait
    """
    return _STEPS.format(only=only, locked=locked)


_SUCCEED = text(f"WITH {success_steps(locked='SKIP LOCKED')} SELECT * FROM ended").bindparams(
    bindparam("ids", type_=ARRAY(Text)),
    bindparam("queues", type_=ARRAY(Text)),
    bindparam("tokens", type_=ARRAY(BigInteger)),
    bindparam("results", type_=ARRAY(Text)),
    bindparam("owner", type_=Text),
    bindparam("now", type_=BigInteger),
)


def succeed(tx: Tx, items: Sequence[tuple[Claim, Transition]]) -> list[Succeeded]:
    """See ``Flavor.succeed``."""
    rows = tx.execute(_SUCCEED, {**columns(items), "owner": owner_of(items), "now": tx.now})
    return [Succeeded(*row) for row in rows]
