"""Stores requests without parents and unique keys by one statement."""

from collections.abc import Sequence
from typing import Any

from forge_jobs.model.jobs import NewJob
from forge_jobs.storage.sql.base.job_columns import NEW
from forge_jobs.storage.sql.base.job_rows import new_job_values
from forge_jobs.storage.sql.base.tables import jobs
from forge_jobs.storage.sql.jobs.enqueue import place_of
from forge_jobs.storage.sql.postgres.direct import COUNT, MOMENT, Direct
from forge_jobs.storage.sql.postgres.short.many import type_name

MOST_QUEUES = 50
"""So that the names of the queues fit into one notification."""

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
_MANY = Direct(
    _ENQUEUE.format(given=f"SELECT * FROM unnest({_LISTED}) AS one ({', '.join(GIVEN)})"),
    {**_OWN, **{name: f"{kind}[]" for name, kind in GIVEN.items()}},
)
# A single request, without the lists: a sixth less time, on both sides.
_ONE = Direct(
    _ENQUEUE.format(given=f"SELECT {', '.join(f':{name} AS {name}' for name in GIVEN)}"),
    {**_OWN, **GIVEN},
)


def fits(requests: Sequence[NewJob]) -> bool:
    """Return whether the statement can store the requests."""
    return (
        all(one.unique is None and not one.after for one in requests)
        and len({one.id for one in requests}) == len(requests)
        and len({one.queue for one in requests}) <= MOST_QUEUES
    )


def statement_for(requests: Sequence[NewJob]) -> Direct:
    """Return the statement for the requests, with the lists or values of :func:`values_of`."""
    return _ONE if len(requests) == 1 else _MANY


def rows_of(requests: Sequence[NewJob]) -> list[dict[str, Any]]:
    """Return the rows of the requests, in the order in which the script stores them."""
    return [
        # Times are relative to the server's now, so they count from zero here.
        {**new_job_values(one, 0, has_children=False), "from_now": one.run_at is None}
        for one in sorted(requests, key=place_of)
    ]


def values_of(requests: Sequence[NewJob]) -> dict[str, Any]:
    """Return the values of the statement, by the parameters' names."""
    rows = rows_of(requests)
    given = rows[0] if len(rows) == 1 else {name: [row[name] for row in rows] for name in GIVEN}
    return {"size": len(rows), **given}
