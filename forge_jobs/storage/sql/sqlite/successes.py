"""Plain successes on SQLite: one statement for a batch, which is sent as one JSON text."""

from collections.abc import Sequence

import msgspec
from sqlalchemy import text

from forge_jobs.model.jobs import Claim
from forge_jobs.model.transitions import Transition
from forge_jobs.storage.sql.base.job_rows import Succeeded
from forge_jobs.storage.sql.base.tables import CLAIMED
from forge_jobs.storage.sql.base.transaction import HotStatement, Tx
from forge_jobs.storage.sql.jobs.endings import SUCCEED

# The plus keeps the planner from the index of a pod's claims, which would be scanned once for each
# item.
_SUCCEED = HotStatement(
    text(
        f"""
    WITH item AS (
        SELECT json_extract(given.value, '$[0]') AS id, queue.name AS queue,
            json_extract(given.value, '$[2]') AS token, json_extract(given.value, '$[3]') AS result,
            CASE WHEN json_valid(queue.retention)
                THEN json_extract(queue.retention, '$.done') END AS kept_for
        FROM json_each(:items) AS given
        JOIN forge_queues AS queue ON queue.name = json_extract(given.value, '$[1]')
    )
    UPDATE forge_jobs AS job
    {SUCCEED}
    FROM item
    WHERE job.id = item.id AND job.queue = item.queue AND job.token = item.token
        AND +job.host_id = :owner AND job.{CLAIMED}
    RETURNING id, queue, host_id, has_children
    """
    )
)


def succeed(tx: Tx, items: Sequence[tuple[Claim, Transition]]) -> Sequence[Succeeded]:
    """See ``Flavor.succeed``."""
    if not items:
        return ()
    listed = msgspec.json.encode(
        [(claim.job_id, claim.queue, claim.token, transition.result) for claim, transition in items]
    )
    values = {"items": listed.decode(), "owner": items[0][0].host_id, "now": tx.now}
    return tx.rows(_SUCCEED, values)
