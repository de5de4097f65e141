"""Ends of claims and new claims in one statement, the round trip of every job."""

from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple

from msgspec import defstruct

from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import ClaimedJob
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Demand, Finalization
from forge_jobs.storage.sql.base.job_columns import CLAIMED_WITH
from forge_jobs.storage.sql.base.job_rows import Unreadable, claimed_jobs, duration
from forge_jobs.storage.sql.base.tables import READY
from forge_jobs.storage.sql.jobs.endings import columns, owner_of
from forge_jobs.storage.sql.postgres.direct import COUNT, MOMENT, NOW, Direct
from forge_jobs.storage.sql.postgres.short.claim_cursors import EVERYTHING, Place
from forge_jobs.storage.sql.postgres.short.claims import claim_steps
from forge_jobs.storage.sql.postgres.short.successes import success_steps

# A script ends jobs with children, because their handovers are written in the same transaction.
_ENDS = success_steps(only="NOT has_children")
# Lock the finished jobs before claiming. Only those locks can block, and a blocked call must not
# hold locks that others need. Claim nothing when the script has to end one of the jobs: the script
# may fail, and the claims would be lost.
_GATE = "(SELECT count(*) FROM item) = cardinality(:ids) AND (SELECT walked FROM earlier) >= 0"
_FROM_LEVEL = "(priority, run_at) >= (:from_level, :from_time)"
_FROM_TIME = (
    f"run_at >= CASE levels.priority WHEN :from_level THEN :from_time ELSE {EVERYTHING.time} END"
)
# Entries of the indexes that claims follow, as far as the session has not reported them yet.
_WALKED = " + ".join(
    f"pg_stat_get_xact_tuples_returned('forge_jobs_{name}'::regclass)"
    for name in ("ready", "ready_by_kind")
)
_EARLIER = f"earlier AS MATERIALIZED (SELECT {_WALKED} AS walked)"

_NEXT_DUE = f"""
    SELECT min(first.run_at) FROM levels CROSS JOIN LATERAL (
        SELECT run_at FROM forge_jobs
        WHERE queue = :queue AND priority = levels.priority AND run_at > {NOW} AND {READY}
        ORDER BY run_at LIMIT 1
    ) AS first
"""

_Row: Any = defstruct(
    "_Row", ("ended", "met", "unknown", "is_cut", "walked", "next_due", *CLAIMED_WITH)
)
_TYPES = {
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


@cache
def exchange(branches: int) -> Direct:
    """Return the statement: the results of the ends in the first row, then the claims.

    :param branches: see ``claim_steps``
    """
    claim = claim_steps(gate=_GATE, from_level=_FROM_LEVEL, from_time=_FROM_TIME, branches=branches)
    steps = f"{_EARLIER}, {_ENDS}, {claim}".replace(":now", NOW)
    return Direct(
        f"""
        WITH RECURSIVE {MOMENT}, {steps}, news AS (
            SELECT queue, host_id, 'succeeded' AS name FROM ended
            UNION ALL
            SELECT queue, :host, 'claimed' FROM changed
        ), counted AS ({COUNT})
        SELECT ARRAY(SELECT id FROM ended) AS ended, (SELECT count(*) FROM head) AS met,
            ARRAY(SELECT DISTINCT kind FROM used WHERE kind <> ALL (:kinds)) AS unknown,
            (SELECT count(*) FROM known) > (SELECT number FROM taken) AS is_cut,
            CASE WHEN (SELECT count(*) FROM head) > 0
                THEN {_WALKED} - (SELECT walked FROM earlier) ELSE 0 END AS walked,
            CASE WHEN (SELECT count(*) FROM changed) < :count THEN ({_NEXT_DUE}) - {NOW} END
                AS next_due,
            {", ".join(f"NULL AS {name}" for name in CLAIMED_WITH)}
        UNION ALL
        SELECT NULL, NULL, NULL, NULL, NULL, NULL, {", ".join(CLAIMED_WITH)} FROM changed
        """,
        _TYPES,
    )


class Answer(NamedTuple):
    """The results of the statement.

    :ivar ended: jobs whose claims were ended. All other ends were left untouched, and then nothing
    was claimed
    :ivar unreadable: claimed jobs that cannot be given to a worker
    :ivar is_whole: no claim is left that the script would have made
    :ivar unknown: kinds of jobs that were met and are not known here
    :ivar is_cut: see ``Picked``
    :ivar walked: index entries passed, those of dead rows too
    :ivar first: the place of the first claim
    :ivar next_due_in: as in ``Exchange``
    """

    ended: frozenset[str]
    claimed: list[ClaimedJob]
    unreadable: list[Unreadable]
    is_whole: bool
    unknown: frozenset[str]
    is_cut: bool
    walked: int
    first: Place | None
    next_due_in: timedelta | None


def values_of(
    queue: str,
    finalizations: Sequence[Finalization],
    demand: Demand,
    lease: PodLease,
    start: Place,
) -> dict[str, Any]:
    """Return the values of the statement, by the parameters' names.

    :param start: jobs before this place are not looked at
    """
    items = [(one.claim, one.transition) for one in finalizations]
    return {
        **columns(items),
        "owner": owner_of(items),
        "queue": queue,
        "host": lease.host_id,
        "epoch": lease.epoch,
        "count": demand.limit,
        "kinds": sorted(demand.kinds),
        "workers": list(demand.worker_ids),
        "any_risk": True,
        "max_bytes": demand.max_bytes,
        "may_exceed": True,
        "from_level": start.level,
        "from_time": start.time,
    }


def answer(rows: Sequence[Any], host_id: HostId) -> Answer:
    """Return the results in the rows, claims in the queue's order.

    :param host_id: the pod that asked
    """
    first, *claimed = (_Row(*row) for row in rows)
    claimed.sort(key=lambda row: (row.priority, row.run_at, row.id))
    readable, unreadable = claimed_jobs(claimed, host_id)
    return Answer(
        ended=frozenset(first.ended),
        claimed=readable,
        unreadable=unreadable,
        is_whole=len(claimed) == first.met or first.is_cut,
        unknown=frozenset(first.unknown),
        is_cut=first.is_cut,
        walked=first.walked,
        first=Place(claimed[0].priority, claimed[0].run_at) if claimed else None,
        next_due_in=timedelta(0) if first.is_cut else duration(first.next_due),
    )
