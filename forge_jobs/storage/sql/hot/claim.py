"""The claim: the first due jobs of a queue, lowest priority first, then due time, then id.

SQLite: a walk of short statements in one transaction, which nothing can come between. The modules
``jobs/claim.py`` and ``sqlite/statements.py`` run them.
Postgres: one statement, which locks each job that is met. ``postgres/short/claims.py`` runs the
claim alone, and ``exchange.py`` has the statement that ends jobs as well.

Parts in braces: ``{READY}`` is the predicate of the indexes of ready jobs, repeated word for word,
so that a planner takes such an index. Columns come from ``base/job_columns.py``.
"""

from forge_jobs.storage.sql.base.job_columns import CLAIMED_WITH
from forge_jobs.storage.sql.base.tables import READY

# -- Both ------------------------------------------------------------------------------------

HAS_LIMITS = "EXISTS (SELECT 1 FROM forge_limits WHERE queue = :queue)"
IS_OPENED = "EXISTS (SELECT 1 FROM forge_openings WHERE queue = :queue)"
"""True where claims have to make jobs ready that a limit held back."""

# -- SQLite ----------------------------------------------------------------------------------

GATE = f"""
    SELECT pod.epoch, pod.lease_until, queue.paused, queue.cooldown_until,
        {HAS_LIMITS} AS has_limits, {IS_OPENED} AS is_opened
    FROM forge_pods AS pod
    JOIN forge_slots AS slot ON slot.host_id = pod.host_id AND slot.epoch = pod.epoch
    JOIN forge_queues AS queue ON queue.name = slot.queue
    WHERE slot.queue = :queue AND pod.host_id = :host
"""
"""Finds a row while the pod declares the queue."""

NEXT_LEVEL = f"""
    SELECT priority, run_at FROM forge_jobs
    WHERE queue = :queue AND priority > :level AND {READY}
    ORDER BY priority, run_at
    LIMIT 1
"""

NEXT_DUE = f"""
    WITH RECURSIVE levels AS (
        SELECT (
            SELECT priority FROM forge_jobs
            WHERE queue = :queue AND {READY}
            ORDER BY priority LIMIT 1
        ) AS priority
        UNION ALL
        SELECT (
            SELECT priority FROM forge_jobs
            WHERE queue = :queue AND priority > levels.priority AND {READY}
            ORDER BY priority LIMIT 1
        )
        FROM levels WHERE levels.priority IS NOT NULL
    )
    SELECT min(first.run_at) AS next_due FROM (
        SELECT (
            SELECT run_at FROM forge_jobs
            WHERE queue = :queue AND priority = levels.priority AND run_at > :now AND {READY}
            ORDER BY run_at LIMIT 1
        ) AS run_at
        FROM levels
    ) AS first
"""
"""The least ``run_at`` to come, looked up once for each priority in use. For both databases."""

_AS_CLAIMED = {"token": "max(forge_jobs.token + 1, :now) AS token"}
READ_WITH = (*CLAIMED_WITH, "limit_name", "limit_key")
_READ = ", ".join(_AS_CLAIMED.get(name, f"forge_jobs.{name}") for name in READ_WITH)
_DUE = f"""
    WHERE queue = :queue AND priority = :level AND run_at <= :now AND {READY}
        AND (expires_at IS NULL OR expires_at > :now)
"""

HEAD = f"""
    SELECT {_READ} FROM forge_jobs
    {_DUE}
    ORDER BY run_at, id
    LIMIT :count
"""
"""The first due jobs of a priority."""

HEAD_OF_KIND = f"""
    SELECT id, run_at, crashes FROM forge_jobs
    {_DUE}
        AND kind = :kind AND (run_at, id) > (:after_run_at, :after_id) AND crashes <= :most_crashes
    ORDER BY run_at, id
    LIMIT :count
"""

# In the order of the ids, and each payload only when asked for: payloads may be large.
WHOLE = f"""
    SELECT {_READ}
    FROM json_each(:ids) AS picked CROSS JOIN forge_jobs ON forge_jobs.id = picked.value
"""

TAKE = """
    UPDATE forge_jobs AS job
    SET status = 'in_progress', attempt = job.attempt + 1, token = max(job.token + 1, :now),
        host_id = :host,
        worker_id = CASE WHEN taken.key < :count
            THEN json_extract(:workers, '$[' || taken.key || ']') ELSE '' END,
        claimed_at = :now, heartbeat_at = :now, started_at = NULL, finished_at = NULL
    FROM json_each(:ids) AS taken
    WHERE job.id = taken.value
"""

EARLIEST = -(2**63)
"""A time before all others."""

# -- Postgres --------------------------------------------------------------------------------

_BEFORE = {"attempt": "job.attempt - 1 AS attempt"}
_RETURNED = ", ".join(_BEFORE.get(name, f"job.{name}") for name in CLAIMED_WITH)

IS_LIMITED = f"EXISTS (SELECT 1 FROM head WHERE limit_name IS NOT NULL) AND {HAS_LIMITS}"
"""True where the head has a job of a limit, in a queue that has limits."""

# open:    one row while the pod's lease is live, the pod declares the queue, and the queue neither
#          pauses nor cools down
# levels:  the priorities in use, found by seeking, so that jobs that are not due yet cost nothing
# head:    the first due jobs of any kind in order, each locked when met. Jobs that another claim
#          has locked are skipped.
# known:   jobs of the head whose kind is known here. A job that may kill the process is never
#          claimed beyond the workers. None where the head has a job of a limit, see exchange.py.
# taken:   as many of them as fit into the bytes of a call, and one at least of the whole call
# used:    kinds of due jobs, all that the head or else the queue has
# changed: each job looked up by the id alone, since all else about the job is being locked. So
#          exactly these rows are changed under any plan.
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
            {{head}}
        ) AS due
        WHERE EXISTS (SELECT FROM open)
        LIMIT :count
    ), known AS (
        SELECT * FROM (
            SELECT id, crashes, size, row_number() OVER (ORDER BY priority, run_at, id) AS place
            FROM head WHERE kind = ANY (:kinds) AND NOT ({IS_LIMITED})
        ) AS placed WHERE place <= cardinality(:workers) OR crashes = 0
    ), taken AS (
        SELECT array_agg(id ORDER BY place) AS ids, count(*) AS number
        FROM (
            SELECT id, place, size, sum(size) OVER (ORDER BY place) AS total FROM known
        ) AS sized WHERE total <= :max_bytes OR (:may_exceed AND total = size)
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
        RETURNING {_RETURNED}
    )
"""


_MAY_BE_TAKEN = """(expires_at IS NULL OR expires_at > :now) AND (:any_risk OR crashes = 0)"""
_HEAD = "id, kind, priority, run_at, crashes, octet_length(payload) AS size, limit_name"
_IN_ORDER = f"""
            SELECT {_HEAD} FROM forge_jobs
            WHERE queue = :queue AND priority = levels.priority AND run_at <= :now AND {READY}
                AND {{from_time}} AND {_MAY_BE_TAKEN}
            ORDER BY run_at, id
            LIMIT :count
            FOR NO KEY UPDATE SKIP LOCKED
"""
_OF_KIND = f"""
                (SELECT id, run_at FROM forge_jobs
                WHERE queue = :queue AND kind = (:kinds)[{{number}}]
                    AND priority = levels.priority AND run_at <= :now AND {READY}
                    AND {{from_time}} AND {_MAY_BE_TAKEN}
                ORDER BY run_at, id
                LIMIT :count + {{locked}})
"""
# Looked up by the id alone: written like this, no index of ready jobs seems to serve as well.
_BY_KIND = f"""
            SELECT mine.* FROM (
                {{branches}}
                ORDER BY run_at, id
            ) AS first CROSS JOIN LATERAL (
                SELECT {_HEAD} FROM forge_jobs
                WHERE id = first.id AND status IN ('pending', 'failed')
                    AND coalesce(hold, '') = '' AND run_at + 0 <= :now
                FOR NO KEY UPDATE SKIP LOCKED
            ) AS mine
            LIMIT :count
"""
# The kinds of all ready jobs, each found by one index step. The last is NULL. A claim that may take
# nothing finds none: what is found and unknown is put on hold afterwards.
_USED = f"""
    , used AS (
        SELECT (
            SELECT kind FROM forge_jobs
            WHERE queue = :queue AND EXISTS (SELECT FROM open) AND {READY}
            ORDER BY kind LIMIT 1
        ) AS kind
        UNION ALL
        SELECT (
            SELECT kind FROM forge_jobs
            WHERE queue = :queue AND kind > used.kind AND {READY} ORDER BY kind LIMIT 1
        )
        FROM used WHERE used.kind IS NOT NULL
    )
"""
_MOST_LOCKED = 4000
"""At most so many jobs of a kind, claimed by other calls at this moment, are skipped."""


def branches_for(kinds: frozenset[str]) -> int:
    """Return how many kinds a statement by kind has room for: a power of two, so that texts are
    few."""
    return max(2, 1 << (len(kinds) - 1).bit_length())


def claim_steps(
    *,
    gate: str = "true",
    from_level: str = "true",
    from_time: str = "true",
    branches: int = 0,
) -> str:
    """Return the steps of a claim of ``:count`` jobs from ``:now`` on, without the final SELECT.

    :param gate: a condition that must hold before the first job is looked for
    :param from_level: a condition of the first job to be looked at, and of those of later levels
    :param from_time: the same, of the jobs of one of ``levels``
    :param branches: how many kinds to merge at most. 0: walk in the order of the queue
    """
    head, used = _IN_ORDER, ", used AS (SELECT kind FROM head)"
    if branches:
        kinds = (
            _OF_KIND.replace("{number}", str(number)).replace("{locked}", str(_MOST_LOCKED))
            for number in range(1, branches + 1)
        )
        head, used = _BY_KIND.replace("{branches}", "UNION ALL".join(kinds)), _USED
    head = head.format(from_time=from_time)
    return _STEPS.format(gate=gate, from_level=from_level, head=head) + used


def alone(branches: int) -> str:
    """Return a claim without ends: the head, with the claims. Of a job that was not taken, only
    whether the kind is known. Nothing is taken where limits have to be looked at (``is_limited``).
    One row in which no job was ``met`` says that there is none.

    :param branches: see :func:`claim_steps`
    """
    steps = claim_steps(branches=branches, gate=f"NOT {IS_OPENED}")
    return f"""
    WITH RECURSIVE {steps}
    SELECT is_opened OR {IS_LIMITED} AS is_limited,
        head.id AS met, head.kind <> ALL (:kinds) AS is_unknown, changed.*,
        changed.id IS NOT NULL AS is_taken, head.crashes > 0 AS is_risky,
        (SELECT count(*) FROM known) > (SELECT number FROM taken) AS is_cut
    FROM (SELECT {IS_OPENED} AS is_opened) AS queue
        LEFT JOIN head ON true LEFT JOIN changed ON changed.id = head.id
    ORDER BY head.priority, head.run_at, head.id
    """
