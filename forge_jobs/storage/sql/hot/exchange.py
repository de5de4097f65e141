"""Ends and new claims in one statement on Postgres, the round trip of every job.

SQLite does the same by the statements of ``finalize.py`` and ``claim.py`` in one transaction.
"""

from forge_jobs.storage.sql.base.job_columns import CLAIMED_WITH
from forge_jobs.storage.sql.base.tables import READY
from forge_jobs.storage.sql.hot.claim import EARLIEST, IS_LIMITED, IS_OPENED, claim_steps
from forge_jobs.storage.sql.hot.finalize import success_steps
from forge_jobs.storage.sql.hot.parts import COUNT, MOMENT, NOW

# A script ends jobs with children, because their handovers are written in the same transaction, and
# jobs of a limit, because their ends open the key.
_ENDS = success_steps(only="NOT has_children AND limit_name IS NULL")
# Lock the finished jobs before claiming. Only those locks can block, and a blocked call must not
# hold locks that others need. Claim nothing when the script has to end one of the jobs: the script
# may fail, and the claims would be lost. A script claims jobs of limits too.
_GATE = """
    (SELECT count(*) FROM item) = cardinality(:ids) AND (SELECT walked FROM earlier) >= 0
            AND NOT (SELECT is_opened FROM opened)
"""
_FROM_LEVEL = "(priority, run_at) >= (:from_level, :from_time)"
_FROM_TIME = f"run_at >= CASE levels.priority WHEN :from_level THEN :from_time ELSE {EARLIEST} END"
# Entries of the indexes that claims follow, as far as the session has not reported them yet.
_WALKED = " + ".join(
    f"pg_stat_get_xact_tuples_returned('forge_jobs_{name}'::regclass)"
    for name in ("ready", "ready_by_kind")
)
_OPENED = f"opened AS MATERIALIZED (SELECT {IS_OPENED} AS is_opened)"
_EARLIER = f"earlier AS MATERIALIZED (SELECT {_WALKED} AS walked)"

_NEXT_DUE = f"""
    SELECT min(first.run_at) FROM levels CROSS JOIN LATERAL (
        SELECT run_at FROM forge_jobs
        WHERE queue = :queue AND priority = levels.priority AND run_at > {NOW} AND {READY}
        ORDER BY run_at LIMIT 1
    ) AS first
"""
TYPES = {
    "clock": "bigint",
    "part": "text",
    "ids": "text[]",
    "queues": "text[]",
    "tokens": "bigint[]",
    "owner": "text",
    "results": "text[]",
    "queue": "text",
    "host": "text",
    "epoch": "text",
    "count": "integer",
    "kinds": "text[]",
    "workers": "text[]",
    "any_risk": "boolean",
    "max_bytes": "bigint",
    "may_exceed": "boolean",
    "from_level": "integer",
    "from_time": "bigint",
}


def exchange(branches: int) -> str:
    """Return the statement: the results of the ends in the first row, then the claims.

    :param branches: see ``claim_steps``
    """
    claim = claim_steps(gate=_GATE, from_level=_FROM_LEVEL, from_time=_FROM_TIME, branches=branches)
    steps = f"{_EARLIER}, {_OPENED}, {_ENDS}, {claim}".replace(":now", NOW)
    return f"""
    WITH RECURSIVE {MOMENT}, {steps}, news AS (
        SELECT queue, host_id, 'succeeded' AS name FROM ended
        UNION ALL
        SELECT queue, :host, 'claimed' FROM changed
    ), counted AS ({COUNT})
    SELECT ARRAY(SELECT id FROM ended) AS ended, (SELECT count(*) FROM head) AS met,
        ARRAY(
            SELECT DISTINCT kind FROM used WHERE kind IS NOT NULL AND kind <> ALL (:kinds)
        ) AS unknown,
        (SELECT count(*) FROM known) > (SELECT number FROM taken) AS is_cut,
        CASE WHEN (SELECT count(*) FROM head) > 0
            THEN {_WALKED} - (SELECT walked FROM earlier) ELSE 0 END AS walked,
        CASE WHEN (SELECT count(*) FROM changed) < :count THEN ({_NEXT_DUE}) - {NOW} END
            AS next_due,
        (SELECT is_opened FROM opened) OR {IS_LIMITED} AS is_limited,
        {", ".join(f"NULL AS {name}" for name in CLAIMED_WITH)}
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, {", ".join(CLAIMED_WITH)} FROM changed
    """
