"""Ends and new claims in one statement on Postgres, the round trip of every job.

SQLite does the same by the statements of ``finalize.py`` and ``claim.py`` in one transaction.

Jobs of limits are claimed by a second statement, whose claim is a function of the database,
``forge_claim_of_limits`` in the migrations. Claims of a queue must count the jobs in progress
one after the other. A statement sees what was committed when that began, and no more once the
lock is there. Each statement of a function sees what was committed before that one.
"""

from forge_jobs.storage.sql.base.job_columns import CLAIMED_WITH
from forge_jobs.storage.sql.base.tables import READY
from forge_jobs.storage.sql.hot.claim import EARLIEST, IS_LIMITED, IS_OPENED, claim_steps
from forge_jobs.storage.sql.hot.finalize import success_steps
from forge_jobs.storage.sql.hot.parts import COUNT, MOMENT, NOW

# A script ends jobs with children, because their handovers are written in the same transaction.
# Ends of jobs of a limit open their keys.
_ENDS = success_steps(only="NOT has_children AND limit_name IS NULL")
# Lock the finished jobs before claiming. Only those locks can block, and a blocked call must not
# hold locks that others need. Claim nothing when the script has to end one of the jobs: the script
# may fail, and the claims would be lost.
_ALL_END = "(SELECT count(*) FROM item) = cardinality(:ids)"
_GATE = f"""
    {_ALL_END} AND (SELECT walked FROM earlier) >= 0
            AND NOT (SELECT is_opened FROM opened)
"""
_FROM_LEVEL = "(priority, run_at) >= (:from_level, :from_time)"
_FROM_TIME = f"run_at >= CASE levels.priority WHEN :from_level THEN :from_time ELSE {EARLIEST} END"


def _so_far(figure: str) -> str:
    """Return a figure of the indexes that claims follow, which the session has not reported yet."""
    return " + ".join(
        f"pg_stat_get_xact_{figure}('forge_jobs_{name}'::regclass)"
        for name in ("ready", "ready_by_kind")
    )


# Entries that are known to be dead do not count as returned, and yet their pages are read until the
# next vacuum. So pages count as well, without those of the way from the root, at 50 entries each.
_WALKED = _so_far("tuples_returned")
_PAGES = f"50 * ({_so_far('blocks_fetched')} - 4 * ({_so_far('numscans')}))"
_OPENED = f"opened AS MATERIALIZED (SELECT {IS_OPENED} AS is_opened)"
_EARLIER = f"earlier AS MATERIALIZED (SELECT {_WALKED} AS walked, {_PAGES} AS pages)"
_PASSED = f"SELECT greatest({_WALKED} - walked, {_PAGES} - pages) FROM earlier"

_NEWS = """news AS (
        SELECT queue, host_id, 'succeeded' AS name FROM ended
        UNION ALL
        SELECT {claims}
    )"""
_OF_CLAIMS = "queue, :host, 'claimed' FROM changed"
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
_OF_PLAIN = {"any_risk", "may_exceed"}
TYPES_WITHIN_LIMITS = {
    **{name: kind for name, kind in TYPES.items() if name not in _OF_PLAIN},
    "by_kind": "boolean",
    "queue_lock": "bigint",
}


def exchange(branches: int) -> str:
    """Return the statement: the results of the ends in the first row, then the claims.

    :param branches: see ``claim_steps``
    """
    claim = claim_steps(gate=_GATE, from_level=_FROM_LEVEL, from_time=_FROM_TIME, branches=branches)
    steps = f"{_EARLIER}, {_OPENED}, {_ENDS}, {claim}".replace(":now", NOW)
    return f"""
    WITH RECURSIVE {MOMENT}, {steps}, {_NEWS.format(claims=_OF_CLAIMS)}, counted AS ({COUNT})
    SELECT ARRAY(SELECT id FROM ended) AS ended, (SELECT count(*) FROM head) AS met,
        ARRAY(
            SELECT DISTINCT kind FROM used WHERE kind IS NOT NULL AND kind <> ALL (:kinds)
        ) AS unknown,
        (SELECT count(*) FROM known) > (SELECT number FROM taken) AS is_cut,
        CASE WHEN (SELECT count(*) FROM head) > 0
            THEN ({_PASSED}) ELSE 0 END AS walked,
        CASE WHEN (SELECT count(*) FROM changed) < :count THEN ({_NEXT_DUE}) - {NOW} END
            AS next_due,
        (SELECT is_opened FROM opened) OR {IS_LIMITED} AS is_limited,
        {", ".join(f"NULL AS {name}" for name in CLAIMED_WITH)}
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, {", ".join(CLAIMED_WITH)} FROM changed
    """


# ended: jobs of limits of other queues are left to the script, which writes openings for them
# freed: read to the end before the function is called, which then sees the ends
_ENDS_WITHIN_LIMITS = success_steps(
    only="NOT has_children AND (limit_name IS NULL OR queue = :queue)"
)
_OF_FOUND = ":queue, :host, 'claimed' FROM found WHERE id IS NOT NULL"
_WITHIN_LIMITS = f"""
    WITH {MOMENT}, {_EARLIER}, {_ENDS_WITHIN_LIMITS}, freed AS MATERIALIZED (
        SELECT array_agg(limit_name) AS names, array_agg(limit_key) AS keys
        FROM ended WHERE limit_name IS NOT NULL
    ), found AS MATERIALIZED (
        SELECT claim.* FROM freed CROSS JOIN LATERAL forge_claim_of_limits(
            :queue, :host, :epoch, {NOW},
            CASE WHEN {_ALL_END} AND (SELECT walked FROM earlier) >= 0 THEN :count ELSE 0 END,
            :max_bytes, :kinds, :workers, :by_kind, freed.names, freed.keys, :queue_lock,
            :from_level, :from_time
        ) AS claim
    ), {_NEWS.format(claims=_OF_FOUND)}, counted AS ({COUNT})
    SELECT CASE WHEN id IS NULL THEN ARRAY(SELECT id FROM ended) END AS ended,
        is_cut, goes_on, wakes, is_limited, unknown, next_due,
        CASE WHEN is_clear THEN ({_PASSED}) END AS walked,
        {", ".join(CLAIMED_WITH)}
    FROM found
"""
WITHIN_LIMITS = _WITHIN_LIMITS.replace(":now", NOW)
"""As :func:`exchange`, with claims of jobs of limits. For sessions of hot statements."""

WITHIN_LIMITS_ANYWHERE = WITHIN_LIMITS.replace(
    "forge_claim_of_limits(", "forge_claim_of_limits_anywhere("
)
"""The same for other sessions: the planner's settings are set for the time of the claim."""
