"""Claims on Postgres: one statement walks the ready jobs and takes what fits.

The statement walks the jobs in the queue's order. Where a job of another pod's kind stands among
them, a second statement merges the jobs of the claim's kinds, each kind by an index. That statement
looks at no job of another kind, and locks none.
"""

from functools import cache

from sqlalchemy import ARRAY, BigInteger, Boolean, Integer, Text, TextClause, bindparam, text

from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Demand
from forge_jobs.storage.sql.base.job_rows import JobRow, Picked
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.config.limits import lock
from forge_jobs.storage.sql.hot import claim as hot
from forge_jobs.storage.sql.hot.permits import Limited, Permits
from forge_jobs.storage.sql.jobs.claim import CLAIMED_COUNTER, open_gate
from forge_jobs.storage.sql.jobs.unknown_kinds import hold_unknown_kinds

_LOOKS = 10
_NOTHING = {"max_bytes": -1, "may_exceed": False}
"""So that the statement locks the first due jobs and takes none of them."""


@cache
def _claim(branches: int, is_limited: bool = False) -> TextClause:
    admitted = [bindparam("admitted", type_=ARRAY(Text))] if is_limited else []
    return text(hot.alone(branches, is_limited=is_limited)).bindparams(
        *admitted,
        bindparam("queue", type_=Text),
        bindparam("host", type_=Text),
        bindparam("epoch", type_=Text),
        bindparam("now", type_=BigInteger),
        bindparam("count", type_=Integer),
        bindparam("kinds", type_=ARRAY(Text)),
        bindparam("workers", type_=ARRAY(Text)),
        bindparam("any_risk", type_=Boolean),
        bindparam("max_bytes", type_=BigInteger),
        bindparam("may_exceed", type_=Boolean),
    )


def claim(
    tx: Tx,
    queue: str,
    demand: Demand,
    lease: PodLease,
    *,
    by_kind: bool = False,
    may_exceed: bool = True,
) -> Picked:
    """See ``Flavor.claim``.

    :param by_kind: jobs of other pods' kinds were met already
    :param may_exceed: the first job is claimed at any size
    """
    if queue in tx.opened:
        return _within_limits(tx, queue, demand, lease, may_exceed=may_exceed)
    found: list[JobRow] = []
    is_cut, any_risk = False, True
    left, elsewhere = demand.max_bytes, frozenset[str]()
    if by_kind:
        elsewhere = hold_unknown_kinds(tx, queue, demand.kinds).elsewhere
    while len(found) < demand.limit:
        wanted = demand.limit - len(found)
        workers = demand.worker_ids[len(found) :]
        head = tx.execute(
            _claim(hot.branches_for(demand.kinds) if by_kind else 0),
            {
                "queue": queue,
                "host": lease.host_id,
                "epoch": lease.epoch,
                "now": tx.now,
                "count": wanted,
                "kinds": sorted(demand.kinds),
                "workers": list(workers[:wanted]),
                "any_risk": any_risk,
                "max_bytes": left,
                "may_exceed": may_exceed and not found,
            },
        ).all()
        if head[0].is_limited:
            if not found:
                return _within_limits(tx, queue, demand, lease, may_exceed=may_exceed)
            # The next claim looks at the limits.
            is_cut = True
            break
        head = [row for row in head if row.met is not None]
        taken = [row for row in head if row.is_taken]
        found += taken
        left -= sum(len(row.payload.encode()) for row in taken)
        is_cut = any(row.is_cut for row in head[:1])
        is_unknown = any(row.is_unknown for row in head)
        if is_unknown:
            elsewhere = hold_unknown_kinds(tx, queue, demand.kinds).elsewhere
        if len(head) < wanted or is_cut:
            break
        # The head was full, and some of its jobs could not be taken: go on by kind.
        by_kind = by_kind or is_unknown
        mine = (row for row in head if not row.is_unknown)
        any_risk = any_risk and not any(row.is_risky and not row.is_taken for row in mine)
    if found:
        tx.count(queue, CLAIMED_COUNTER, lease.host_id, len(found))
    return Picked(found, is_cut, elsewhere)


def _within_limits(
    tx: Tx, queue: str, demand: Demand, lease: PodLease, *, may_exceed: bool
) -> Picked:
    """Claim jobs of limits and others. Other such claims of the queue wait for this one.

    The statement first shows the jobs that come next, and runs again to take them once it is known
    which of them may be taken.
    """
    if open_gate(tx, queue, lease) is None:
        return Picked([], is_cut=False)
    lock(tx, queue)
    permits = Permits(tx, queue, demand.limit)
    found: list[JobRow] = []
    left, any_risk = demand.max_bytes, True
    elsewhere, by_kind, is_cut = frozenset[str](), False, True
    for _ in range(_LOOKS):
        wanted = demand.limit - len(found)
        if wanted < 1:
            is_cut = False
            break
        values = {
            "queue": queue,
            "host": lease.host_id,
            "epoch": lease.epoch,
            "now": tx.now,
            "count": wanted,
            "kinds": sorted(demand.kinds),
            "workers": list(demand.worker_ids[len(found) :][:wanted]),
            "any_risk": any_risk,
            "max_bytes": left,
            "may_exceed": may_exceed and not found,
        }
        statement = _claim(hot.branches_for(demand.kinds) if by_kind else 0, is_limited=True)
        head = tx.execute(statement, {**values, **_NOTHING, "admitted": []}).all()
        if head[0].met is None:
            is_cut = False
            break
        if any(row.is_unknown for row in head) and not by_kind:
            elsewhere, by_kind = hold_unknown_kinds(tx, queue, demand.kinds).elsewhere, True
            continue
        # A job that may kill the process is only taken for a worker.
        workers = len(demand.worker_ids) - len(found)
        mine = [
            Limited(row.met, row.limit_name, row.limit_key, row.level)
            for place, row in enumerate(head)
            if place < workers or not row.is_risky
        ]
        if not permits.admit(mine):
            if permits.is_spent:
                break
            continue
        admitted = [row.id for row in mine if permits.may_take(row)]
        head = tx.execute(statement, {**values, "admitted": admitted}).all()
        head = [row for row in head if row.met is not None]
        taken = [row for row in head if row.is_taken]
        found += taken
        left -= sum(len(row.payload.encode()) for row in taken)
        is_cut = any(row.is_cut for row in head[:1])
        if len(head) < wanted or is_cut:
            break
        any_risk = any_risk and not any(row.is_risky and not row.is_taken for row in head)
        is_cut = True
    permits.finish({row.id for row in found})
    if found:
        tx.count(queue, CLAIMED_COUNTER, lease.host_id, by=len(found))
    return Picked(found, is_cut, elsewhere)
