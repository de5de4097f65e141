"""New jobs without unique keys and parents, stored and counted by one statement on Postgres.

SQLite runs a plain INSERT of the same columns, 25 rows at a time (``sqlite/statements.py``). No
other transaction can store one of the ids meanwhile.
"""

from collections.abc import Sequence

from forge_jobs.storage.sql.base.job_columns import NEW
from forge_jobs.storage.sql.base.tables import PARKED, READY, jobs
from forge_jobs.storage.sql.hot import behind
from forge_jobs.storage.sql.hot.parts import COUNT, MOMENT, type_name

_FROM_NOW = "CASE WHEN given.from_now THEN moment.now ELSE 0 END"
_BY_CLOCK = {
    "run_at": f"given.run_at + {_FROM_NOW}",
    "requested_run_at": f"given.requested_run_at + {_FROM_NOW}",
    "enqueued_at": "moment.now",
    "token": "moment.now",
}
_NEVER = 2**62
_SOON = 3_600_000_000
"""No statement runs for so many microseconds."""

_ALONE = tuple(name for name in NEW if name not in {"unique_key", "has_children"})


def given(names: Sequence[str]) -> dict[str, str]:
    """Return the parameters of an INSERT of these columns, with the type of each."""
    sent = (name for name in names if _BY_CLOCK.get(name) != "moment.now")
    return {**{name: type_name(jobs.c[name].type) for name in sent}, "from_now": "boolean"}


def inserted(names: Sequence[str]) -> str:
    """Return what to SELECT FROM ``given CROSS JOIN moment`` for these columns."""
    return ", ".join(_BY_CLOCK.get(name, f"given.{name}") for name in names)


GIVEN = given(_ALONE)
_LISTED = ", ".join(f":{name}" for name in GIVEN)

# A request that was not inserted is stored already, or was a moment ago. The division by zero then
# undoes the whole statement, and the script finds what is stored.
_ENQUEUE = f"""
    WITH {MOMENT}, given AS ({{given}}){{looked}}, stored AS (
        INSERT INTO forge_jobs
            ({", ".join(_ALONE)}{{hold}})
        SELECT {inserted(_ALONE)}{{held}}
        FROM given CROSS JOIN moment
        ON CONFLICT DO NOTHING
        RETURNING queue, run_at
    ), news AS (
        SELECT queue, '' AS host_id, 'enqueued' AS name FROM stored
    ), counted AS ({COUNT}), due AS (
        SELECT DISTINCT stored.queue FROM stored CROSS JOIN moment WHERE stored.run_at <= moment.now
    )
    SELECT ARRAY(SELECT queue FROM due) AS due,
        1 / CASE WHEN (SELECT count(*) FROM stored) = :size THEN 1 ELSE 0 END AS whole
"""
_OWN = {"clock": "bigint", "part": "text", "size": "integer"}

_PLAIN = {"looked": "", "hold": "", "held": ""}
_AS_LISTS = f"SELECT * FROM unnest({_LISTED}) AS one ({', '.join(GIVEN)})"
_AS_VALUES = f"SELECT {', '.join(f':{name} AS {name}' for name in GIVEN)}"

MANY = _ENQUEUE.format(given=_AS_LISTS, **_PLAIN)
TYPES_OF_MANY = {**_OWN, **{name: f"{kind}[]" for name, kind in GIVEN.items()}}

# A single request, without the lists: a sixth less time, on both sides.
ONE = _ENQUEUE.format(given=_AS_VALUES, **_PLAIN)
TYPES_OF_ONE = {**_OWN, **GIVEN}

# With jobs of limits that are due at once. A key is looked at once, see ``behind.py``.
# behind: the last job on hold is locked, and so stays on hold until the new job can be seen. Claims
#         skip the locked job, and see that the job is on hold: they leave an opening where there is
#         room. One that expires soon may be gone for them
# beyond: the key is full, or takes turns, or the jobs are a burst. The next claim looks at the key
#         again. A call is too small for many bursts
_OF_KEY = "queue = wanted.queue AND limit_name = wanted.name AND limit_key = wanted.key"
_LOOKED = f""", looked AS MATERIALIZED (
        SELECT wanted.*, bound.at_most, bound.share, coalesce((
            SELECT coalesce(held.expires_at, {_NEVER}) FROM forge_jobs AS held
            WHERE held.{_OF_KEY.replace("AND ", "AND held.")} AND {PARKED}
            ORDER BY held.priority DESC, held.run_at DESC, held.id DESC
            LIMIT 1
            FOR SHARE SKIP LOCKED
        ) > moment.now + {_SOON}, false) AS is_behind
        FROM ({{keys}}) AS wanted CROSS JOIN moment
        LEFT JOIN forge_limits AS bound
            ON bound.queue = wanted.queue AND bound.name = wanted.name
    ), decided AS MATERIALIZED (
        SELECT wanted.*, NOT is_behind AND at_most IS NOT NULL AND (
            share IS NOT NULL OR at_most <= used
            OR CASE WHEN jobs > at_most - used + {behind.MANY} THEN (
                SELECT count(*) FILTER (WHERE run_at <= moment.now) FROM (
                    SELECT run_at FROM forge_jobs WHERE queue = wanted.queue AND {READY}
                    ORDER BY priority, run_at
                    LIMIT wanted.jobs / {behind.IN_FRONT}
                ) AS first CROSS JOIN moment
            ) < jobs / {behind.IN_FRONT} AND (
                SELECT count(*) FROM (
                    SELECT FROM forge_openings WHERE queue = wanted.queue LIMIT {behind.MOST_OPEN}
                ) AS one
            ) < {behind.MOST_OPEN} ELSE false END
        ) AS is_beyond
        FROM (
            SELECT looked.*, CASE WHEN NOT is_behind AND share IS NULL THEN (
                SELECT count(*) FROM forge_jobs AS running
                WHERE running.{_OF_KEY.replace("wanted", "looked").replace("AND ", "AND running.")}
                    AND running.status = 'in_progress' AND running.limit_name IS NOT NULL
                    AND at_most IS NOT NULL
            ) END AS used
            FROM looked
        ) AS wanted
    ), opened AS (
        INSERT INTO forge_openings (queue, limit_name, limit_key, since)
        SELECT queue, name, key, moment.now FROM decided CROSS JOIN moment WHERE is_beyond
    ), held AS MATERIALIZED (
        SELECT array_agg(is_behind OR is_beyond ORDER BY place) AS are_held FROM decided
    )"""
_IS_HELD = ", CASE WHEN (SELECT are_held FROM held)[given.of_key] THEN 'limit' END"
_KEYS = {"key_queues": "text[]", "key_names": "text[]", "keys": "text[]", "jobs": "integer[]"}
_LISTED_KEYS = f"""
            SELECT * FROM unnest({", ".join(f":{name}" for name in _KEYS)})
                WITH ORDINALITY AS one (queue, name, key, jobs, place)
"""
_OWN_KEY = "SELECT :queue AS queue, :limit_name AS name, :limit_key AS key, 1 AS jobs, 1 AS place"

MANY_OF_KEYS = _ENQUEUE.format(
    given=f"""
        SELECT * FROM unnest({_LISTED}, :of_key) AS one ({", ".join(GIVEN)}, of_key)
    """,
    looked=_LOOKED.format(keys=_LISTED_KEYS),
    hold=", hold",
    held=_IS_HELD,
)
TYPES_OF_MANY_OF_KEYS = {**TYPES_OF_MANY, "of_key": "integer[]", **_KEYS}

ONE_OF_KEY = _ENQUEUE.format(
    given=f"{_AS_VALUES}, 1 AS of_key",
    looked=_LOOKED.format(keys=_OWN_KEY),
    hold=", hold",
    held=_IS_HELD,
)
