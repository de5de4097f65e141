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
from forge_jobs.storage.sql.hot import claim as hot
from forge_jobs.storage.sql.jobs.claim import CLAIMED_COUNTER
from forge_jobs.storage.sql.jobs.unknown_kinds import hold_unknown_kinds

_LATER = Picked([], is_cut=True)


@cache
def _claim(branches: int) -> TextClause:
    return text(hot.alone(branches)).bindparams(
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
    if demand.limit > 0 and any(of == queue for of, *_ in tx.freed):
        return _LATER
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
            # The claim that looks at limits is a transaction of its own: see the job store.
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
