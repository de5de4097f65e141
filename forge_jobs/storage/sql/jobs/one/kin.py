"""The parents and children of jobs. Each direction of a job is one entry into an index."""

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec
from sqlalchemy import Row, Select, TextClause, bindparam, literal_column, select, text

from forge_jobs.model.edges import MOST_OF_ONE, EdgeState, Kin, Relative
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Job, JobStatus
from forge_jobs.storage.sql.base.job_rows import job
from forge_jobs.storage.sql.base.tables import jobs
from forge_jobs.storage.sql.base.transaction import Tx

_PARENT, _CHILD = 0, 1
# The first relatives of each job as a list, whose length no planner overrates. Of a join with a
# limit or a bound PostgreSQL expects a share of all edges, and reads all jobs. SQLite makes an
# index for that.
_LISTED_ON_POSTGRES = "LATERAL unnest(ARRAY({})) AS listed (value)"
_LISTED_ON_SQLITE = "json_each((SELECT json_group_array(id) FROM ({}))) AS listed"
_PARENTS = (
    "SELECT parent_id AS id FROM forge_edges WHERE child_id = stored.id ORDER BY 1 LIMIT :most"
)
_CHILDREN = (
    "SELECT child_id AS id FROM forge_edges WHERE parent_id = stored.id ORDER BY 1 LIMIT :most"
)


def _written(stored: str, listed: str) -> TextClause:
    """Return the statement. Each stored job has a row, also without relatives."""
    return text(
        f"""
        WITH stored AS MATERIALIZED (SELECT id FROM forge_jobs WHERE id {stored})
        SELECT stored.id AS job, {_PARENT} AS side, listed.value AS relative, on_failure, state,
            queue, kind, status
        FROM stored LEFT JOIN {listed.format(_PARENTS)} ON true
        LEFT JOIN forge_edges ON child_id = stored.id AND parent_id = listed.value
        LEFT JOIN forge_jobs ON forge_jobs.id = listed.value
        UNION ALL
        SELECT stored.id, {_CHILD}, listed.value, on_failure, state, queue, kind, status
        FROM stored CROSS JOIN {listed.format(_CHILDREN)}
        JOIN forge_edges ON child_id = listed.value AND parent_id = stored.id
        JOIN forge_jobs ON forge_jobs.id = listed.value
        ORDER BY 1, 2, 3
        """
    )


_ON_POSTGRES = _written("= ANY(CAST(:ids AS text[]))", _LISTED_ON_POSTGRES)
_ON_SQLITE = _written("IN (SELECT value FROM json_each(:ids))", _LISTED_ON_SQLITE)


def _whole(array: str, gathered: str, listed: str) -> Select[Any]:
    """Return the statement of a whole job with all its parents as one value.

    Left joins keep their order on SQLite, which would look through the list for each edge.
    """
    parents = listed.format(
        "SELECT parent_id AS id FROM forge_edges WHERE child_id = forge_jobs.id"
        f" ORDER BY 1 LIMIT {MOST_OF_ONE}"
    )
    edge = f"{array}(edge.parent_id, edge.on_failure, edge.state, parent.queue, parent.kind,"
    return select(
        jobs,
        literal_column(
            f"(SELECT {gathered.format(edge + ' parent.status)')} FROM {parents}"
            " LEFT JOIN forge_edges AS edge"
            " ON edge.child_id = forge_jobs.id AND edge.parent_id = listed.value"
            " LEFT JOIN forge_jobs AS parent ON parent.id = listed.value)"
        ).label("parents"),
    ).where(jobs.c.id == bindparam("job"))


_WHOLE_ON_POSTGRES = _whole(
    "json_build_array", "CAST(json_agg({}) AS text)", "unnest(ARRAY({})) AS listed (value)"
)
_WHOLE_ON_SQLITE = _whole("json_array", "json_group_array({})", _LISTED_ON_SQLITE)


class _Edge(msgspec.Struct, frozen=True, array_like=True):
    """A parent as the statement of a whole job tells it."""

    relative: str
    on_failure: str
    state: str
    queue: str | None
    kind: str | None
    status: str | None


def with_parents(tx: Tx, job_id: JobId) -> tuple[Job, tuple[Relative, ...]] | None:
    """See ``KinStore.with_parents``."""
    written = _WHOLE_ON_SQLITE if tx.flavor.name == "sqlite" else _WHOLE_ON_POSTGRES
    row = tx.execute(written, {"job": job_id}).first()
    if row is None:
        return None
    edges = msgspec.json.decode(row.parents or "[]", type=list[_Edge])
    parents = sorted(map(_relative, edges), key=lambda each: each.id)
    is_blocked = row.status == JobStatus.BLOCKED.value
    waits: dict[str, EdgeState] = {
        each.id: each.edge for each in parents if is_blocked and each.edge.waits
    }
    return job(row, waits), tuple(parents)


def kin_of(tx: Tx, ids: Sequence[JobId], limit: int) -> dict[JobId, Kin]:
    """See ``KinStore.kin``. One statement for all jobs."""
    asked, most = sorted(set(ids)), limit + 1
    if tx.flavor.name == "sqlite":
        rows = tx.execute(_ON_SQLITE, {"ids": json.dumps(asked), "most": most})
    else:
        rows = tx.execute(_ON_POSTGRES, {"ids": asked, "most": most})
    return {
        JobId(job): _kin(list(found), limit) for job, found in groupby(rows, lambda row: row.job)
    }


def _kin(rows: Sequence[Row[Any]], limit: int) -> Kin:
    parents = [_relative(row) for row in rows if row.side == _PARENT and row.relative is not None]
    children = [_relative(row) for row in rows if row.side == _CHILD]
    return Kin(
        parents=tuple(parents[:limit]),
        children=tuple(children[:limit]),
        more_parents=len(parents) > limit,
        more_children=len(children) > limit,
    )


def _relative(row: Row[Any] | _Edge) -> Relative:
    return Relative(
        id=JobId(row.relative),
        queue=row.queue or "",
        kind=row.kind or "",
        status=None if row.status is None else JobStatus(row.status),
        on_failure=row.on_failure,
        edge=EdgeState(row.state),
    )
