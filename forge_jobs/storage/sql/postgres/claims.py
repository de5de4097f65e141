"""Claims on Postgres: one statement walks the ready jobs and takes what it may."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from sqlalchemy import ARRAY, BigInteger, Boolean, Integer, Row, Text, bindparam, text

from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Demand
from forge_jobs.storage.sql.claims import CLAIMED_COUNTER, Strangers
from forge_jobs.storage.sql.job_rows import JobRow
from forge_jobs.storage.sql.tables import READY
from forge_jobs.storage.sql.transaction import Tx

COLUMNS = (
    "queue",
    "kind",
    "payload",
    "max_attempts",
    "crashes",
    "snoozes",
    "snoozed_at",
    "priority",
    "timeout_us",
    "tags",
    "metadata",
    "trace",
    "run_at",
    "enqueued_at",
    "keep_result",
    "cancel_requested",
    "schedule",
)

# open:    one row while the pod's lease is live, it declares the queue, and the queue neither
#          pauses nor cools down
# levels:  the priorities in use, found by seeking; so jobs that are not due yet cost nothing
# head:    the first due jobs in order, whatever their kind, each locked as it is met. What
#          another claim has locked is passed by.
# taken:   those of the head whose kind is known here. One that may kill its process is never
#          claimed beyond the workers.
# changed: each looked up by its id alone, the rest of what they are being locked; so exactly these
#          rows are changed whatever plan is chosen
_STEPS = f"""
    open AS (
        SELECT 1 FROM forge_pods AS pod
        JOIN forge_slots AS slot ON slot.host_id = pod.host_id AND slot.epoch = pod.epoch
        JOIN forge_queues AS queue ON queue.name = slot.queue
        WHERE slot.queue = :queue AND pod.host_id = :host
            AND pod.epoch = :epoch AND pod.lease_until > :now
            AND NOT queue.paused AND {{gate}}
            AND (queue.cooldown_until IS NULL OR queue.cooldown_until <= :now)
    ), levels AS (
        SELECT (
            SELECT priority FROM forge_jobs
            WHERE queue = :queue AND {READY} AND {{from_level}}
            ORDER BY priority LIMIT 1
        ) AS priority
        UNION ALL
        SELECT (
            SELECT priority FROM forge_jobs
            WHERE queue = :queue AND priority > levels.priority AND {READY}
            ORDER BY priority LIMIT 1
        )
        FROM levels WHERE levels.priority IS NOT NULL
    ), head AS MATERIALIZED (
        SELECT due.* FROM levels CROSS JOIN LATERAL (
            SELECT id, kind, priority, run_at, crashes FROM forge_jobs
            WHERE queue = :queue AND priority = levels.priority AND run_at <= :now AND {READY}
                AND {{from_time}}
                AND (expires_at IS NULL OR expires_at > :now)
                AND (:any_kind OR kind = ANY (:kinds))
                AND (:any_risk OR crashes = 0)
            ORDER BY run_at, id
            LIMIT :count
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS due
        WHERE EXISTS (SELECT FROM open)
        LIMIT :count
    ), known AS (
        SELECT id, crashes, row_number() OVER (ORDER BY priority, run_at, id) AS place
        FROM head WHERE kind = ANY (:kinds)
    ), taken AS (
        SELECT array_agg(id ORDER BY place) AS ids
        FROM known WHERE place <= cardinality(:workers) OR crashes = 0
    ), changed AS (
        UPDATE forge_jobs AS job
        SET status = 'in_progress',
            attempt = least(job.attempt, 2147483646) + 1,
            token = greatest(job.token + 1, :now),
            host_id = :host,
            worker_id = coalesce((:workers)[mine.place], ''),
            claimed_at = :now,
            heartbeat_at = :now,
            started_at = NULL,
            finished_at = NULL
        FROM unnest((SELECT ids FROM taken)) WITH ORDINALITY AS mine (id, place)
        WHERE job.id = mine.id
        RETURNING job.id, job.token, job.attempt - 1 AS attempt,
            {", ".join(f"job.{name}" for name in COLUMNS)}
    )
"""


def claim_steps(*, gate: str = "true", from_level: str = "true", from_time: str = "true") -> str:
    """From ``:now`` on, everything that a claim of ``:count`` jobs is but its answer.

    :param gate: what has to hold before the first job is looked for
    :param from_level: holds for the first job to be looked at, and for those of later levels
    :param from_time: the same, of the jobs of one of ``levels``
    """
    return _STEPS.format(gate=gate, from_level=from_level, from_time=from_time)


# The head; of a job that was not taken, no more than the kind and its level.
_CLAIM = text(
    f"""
    WITH RECURSIVE {claim_steps()}
    SELECT head.kind AS met, head.priority AS level, changed.*, changed.id IS NOT NULL AS is_taken,
        head.crashes > 0 AS is_risky
    FROM head LEFT JOIN changed ON changed.id = head.id
    ORDER BY head.priority, head.run_at, head.id
    """
).bindparams(
    bindparam("queue", type_=Text),
    bindparam("host", type_=Text),
    bindparam("epoch", type_=Text),
    bindparam("now", type_=BigInteger),
    bindparam("count", type_=Integer),
    bindparam("kinds", type_=ARRAY(Text)),
    bindparam("workers", type_=ARRAY(Text)),
    bindparam("any_kind", type_=Boolean),
    bindparam("any_risk", type_=Boolean),
)


def claim(tx: Tx, queue: str, demand: Demand, lease: PodLease) -> list[JobRow]:
    """See ``Flavor.claim``."""
    found: list[JobRow] = []
    any_kind = any_risk = True
    aside = Strangers(tx, queue)
    while len(found) < demand.limit:
        wanted = demand.limit - len(found)
        workers = demand.worker_ids[len(found) :]
        head = tx.execute(
            _CLAIM,
            {
                "queue": queue,
                "host": lease.host_id,
                "epoch": lease.epoch,
                "now": tx.now,
                "count": wanted,
                "kinds": sorted(demand.kinds),
                "workers": list(workers[:wanted]),
                "any_kind": any_kind,
                "any_risk": any_risk,
            },
        ).all()
        taken = [row for row in head if row.is_taken]
        found += taken
        strangers = _by_level(row for row in head if row.met not in demand.kinds)
        held = [aside.hold(level, kinds) for level, kinds in sorted(strangers.items())]
        if len(head) < wanted:
            break
        # The head was full, and some of it could not be taken. Strangers that were put aside are
        # out of the way, and others may stand behind them; else go on with what can be taken.
        any_kind = any(held)
        # Strangers were left for their kind, whatever their crashes.
        mine = (row for row in head if row.met in demand.kinds)
        any_risk = any_risk and not any(row.is_risky and not row.is_taken for row in mine)
    if found:
        tx.count(queue, CLAIMED_COUNTER, lease.host_id, len(found))
    return found


def _by_level(rows: Iterable[Row[Any]]) -> dict[int, set[str]]:
    kinds: defaultdict[int, set[str]] = defaultdict(set)
    for row in rows:
        kinds[row.level].add(row.met)
    return kinds
