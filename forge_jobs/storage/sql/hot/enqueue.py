"""New jobs without unique keys and parents, stored and counted by one statement on Postgres.

SQLite runs a plain INSERT of the same columns, 25 rows at a time (``sqlite/statements.py``). No
other transaction can store one of the ids meanwhile.
"""

from collections.abc import Sequence

from forge_jobs.storage.sql.base.job_columns import NEW
from forge_jobs.storage.sql.base.tables import jobs
from forge_jobs.storage.sql.hot.parts import COUNT, MOMENT, type_name

_FROM_NOW = "CASE WHEN given.from_now THEN moment.now ELSE 0 END"
_BY_CLOCK = {
    "run_at": f"given.run_at + {_FROM_NOW}",
    "requested_run_at": f"given.requested_run_at + {_FROM_NOW}",
    "enqueued_at": "moment.now",
    "token": "moment.now",
}
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
    WITH {MOMENT}, given AS ({{given}}), stored AS (
        INSERT INTO forge_jobs
            ({", ".join(_ALONE)})
        SELECT {inserted(_ALONE)}
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

MANY = _ENQUEUE.format(given=f"SELECT * FROM unnest({_LISTED}) AS one ({', '.join(GIVEN)})")
TYPES_OF_MANY = {**_OWN, **{name: f"{kind}[]" for name, kind in GIVEN.items()}}

# A single request, without the lists: a sixth less time, on both sides.
ONE = _ENQUEUE.format(given=f"SELECT {', '.join(f':{name} AS {name}' for name in GIVEN)}")
TYPES_OF_ONE = {**_OWN, **GIVEN}
