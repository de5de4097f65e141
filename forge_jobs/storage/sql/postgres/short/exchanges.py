"""Ends of claims and new claims in one statement, the round trip of every job."""

from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple

from msgspec import defstruct

from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import Claim, ClaimedJob
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Demand, Finalization, Transition
from forge_jobs.storage.sql.base.job_columns import CLAIMED_WITH
from forge_jobs.storage.sql.base.job_rows import Unreadable, claimed_jobs, duration
from forge_jobs.storage.sql.hot import exchange as hot
from forge_jobs.storage.sql.postgres.direct import Direct, Patient
from forge_jobs.storage.sql.postgres.short.claim_cursors import Place

_Row: Any = defstruct(
    "_Row", ("ended", "met", "unknown", "is_cut", "walked", "next_due", "is_limited", *CLAIMED_WITH)
)


@cache
def exchange(branches: int) -> Direct:
    """Return the statement of :mod:`~forge_jobs.storage.sql.hot.exchange`.

    :param branches: see ``claim_steps``
    """
    return Direct(hot.exchange(branches), hot.TYPES)


_LimitedRow: Any = defstruct(
    "_LimitedRow",
    (
        *("ended", "is_cut", "goes_on", "wakes", "is_limited", "unknown", "next_due", "walked"),
        *CLAIMED_WITH,
    ),
)
WITHIN_LIMITS = Direct(hot.WITHIN_LIMITS, hot.TYPES_WITHIN_LIMITS)
"""Claims jobs of limits as well, see :mod:`~forge_jobs.storage.sql.hot.exchange`."""
PATIENTLY_WITHIN_LIMITS = Patient(hot.WITHIN_LIMITS_ANYWHERE, hot.TYPES_WITHIN_LIMITS)


class Answer(NamedTuple):
    """The results of the statement.

    :ivar ended: jobs whose claims were ended. All other ends were left untouched, and then nothing
    was claimed
    :ivar unreadable: claimed jobs that cannot be given to a worker
    :ivar is_whole: no claim is left that the script would have made
    :ivar unknown: kinds of jobs that were met and are not known here
    :ivar is_cut: see ``Picked``
    :ivar walked: index entries passed, those of dead rows too. None after a claim that had to
        decide about each job, from the front
    :ivar first: the place of the first claim
    :ivar next_due_in: as in ``Exchange``
    :ivar is_limited: limits have to be looked at, and nothing was claimed. Of
        :data:`WITHIN_LIMITS`: jobs of limits were met
    :ivar goes_on: as in ``Exchange``
    """

    ended: frozenset[str]
    claimed: list[ClaimedJob]
    unreadable: list[Unreadable]
    is_whole: bool
    unknown: frozenset[str]
    is_cut: bool
    walked: int | None
    first: Place | None
    next_due_in: timedelta | None
    is_limited: bool
    goes_on: bool = False


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
        **columns_of(items),
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


def values_within_limits(
    queue: str,
    finalizations: Sequence[Finalization],
    demand: Demand,
    lease: PodLease,
    start: Place,
    *,
    by_kind: bool,
    queue_lock: int,
) -> dict[str, Any]:
    """Return the values of :data:`WITHIN_LIMITS`, by the parameters' names.

    :param start: as in :func:`values_of`, for claims where all jobs that come first may be taken
    :param by_kind: jobs of other pods' kinds are known to be ready
    :param queue_lock: the key of the lock that claims within limits of the queue hold
    """
    values = values_of(queue, finalizations, demand, lease, start)
    return {**values, "by_kind": by_kind, "queue_lock": queue_lock}


def columns_of(items: Sequence[tuple[Claim, Transition]]) -> dict[str, Any]:
    """Return plain successes by the statement's parameters: one list for each, and the pod."""
    return {
        "ids": [claim.job_id for claim, _ in items],
        "queues": [claim.queue for claim, _ in items],
        "tokens": [claim.token for claim, _ in items],
        "results": [transition.result for _, transition in items],
        "owner": items[0][0].host_id if items else "",
    }


def answer(rows: Sequence[Any], host_id: HostId) -> Answer:
    """Return the results in the rows, claims in the queue's order.

    :param host_id: the pod that asked
    """
    first, *claimed = (_Row(*row) for row in rows)
    claimed = _in_order(claimed)
    next_due_in = timedelta(0) if first.is_cut else duration(first.next_due)
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
        next_due_in=next_due_in,
        is_limited=first.is_limited,
    )


def answer_within_limits(rows: Sequence[Any], host_id: HostId) -> Answer:
    """As :func:`answer`, of :data:`WITHIN_LIMITS`.

    A claim that decides about each job gives them in the order in which they are to start, and any
    other claim in no order.
    """
    each = [_LimitedRow(*row) for row in rows]
    claimed = [row for row in each if row.id is not None]
    # The results, and a last one behind them when fewer were claimed than asked for.
    told = [row for row in each if row.id is None]
    first, last = told[0], told[-1]
    if first.walked is not None:
        claimed = _in_order(claimed)
    is_cut = first.is_cut or last.is_cut
    readable, unreadable = claimed_jobs(claimed, host_id)
    return Answer(
        ended=frozenset(first.ended),
        claimed=readable,
        unreadable=unreadable,
        is_whole=True,
        unknown=frozenset(first.unknown),
        is_cut=is_cut,
        walked=first.walked,
        first=min((Place(row.priority, row.run_at) for row in claimed), default=None),
        next_due_in=timedelta(0) if is_cut or unreadable else duration(last.next_due),
        is_limited=any(row.is_limited for row in each),
        goes_on=first.goes_on or last.goes_on,
    )


def _in_order(claimed: list[Any]) -> list[Any]:
    return sorted(claimed, key=lambda row: (row.priority, row.run_at, row.id))
