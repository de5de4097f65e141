"""The parents and children of jobs. Each direction of a job is one entry into an index."""

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import Row, TextClause, text

from forge_jobs.model.edges import EdgeState, Kin, Relative
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
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


def _relative(row: Row[Any]) -> Relative:
    return Relative(
        id=JobId(row.relative),
        queue=row.queue or "",
        kind=row.kind or "",
        status=None if row.status is None else JobStatus(row.status),
        on_failure=row.on_failure,
        edge=EdgeState(row.state),
    )
