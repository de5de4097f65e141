"""Pods and workers as people see them."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import Row, func, select, text

from forge_jobs.clock import EPOCH, from_us
from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import PodState, Slots, WorkerState
from forge_jobs.storage.salvage import instant_or
from forge_jobs.storage.sql.gauges import decode_gauges
from forge_jobs.storage.sql.live_pods import pod_of
from forge_jobs.storage.sql.routes import decode_routes
from forge_jobs.storage.sql.tables import CLAIMED, jobs, pods, slots
from forge_jobs.storage.sql.transaction import Tx

_PODS = select(pods)
_SLOTS = select(slots).join_from(
    slots, pods, (pods.c.host_id == slots.c.host_id) & (pods.c.epoch == slots.c.epoch)
)
_HOLDINGS = (
    select(jobs.c.host_id, jobs.c.queue, func.count().label("claims"))
    .where(text(CLAIMED))
    .group_by(jobs.c.host_id, jobs.c.queue)
)
_WORKERS = (
    select(
        jobs.c.worker_id, jobs.c.host_id, jobs.c.queue, jobs.c.id, jobs.c.kind, jobs.c.started_at
    )
    .where(text(CLAIMED), jobs.c.started_at.is_not(None))
    .order_by(jobs.c.host_id, jobs.c.queue, jobs.c.id)
)


def list_pods(tx: Tx) -> list[PodState]:
    """See ``ProcStore.pods``."""
    by_pod: defaultdict[str, dict[str, Slots]] = defaultdict(dict)
    for row in tx.execute(_SLOTS):
        by_pod[row.host_id][row.queue] = Slots(row.target, row.granted)
    held: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for row in tx.execute(_HOLDINGS):
        held[row.host_id][row.queue] = row.claims
    ordered = tx.execute(_PODS.order_by(pods.c.started_at, pods.c.host_id))
    return [_pod_state(row, by_pod[row.host_id], held[row.host_id], tx.now) for row in ordered]


def _pod_state(
    row: Row[Any], of_pod: Mapping[str, Slots], held: Mapping[str, int], now: int
) -> PodState:
    remaining = max(0, row.lease_until - now)
    return PodState(
        pod=pod_of(row, decode_routes(row.routes)),
        started_at=from_us(row.started_at),
        last_beat_at=from_us(row.last_beat_at),
        lease_remaining=timedelta(microseconds=remaining),
        draining=bool(row.draining),
        slots=of_pod if remaining else dict.fromkeys(of_pod, Slots(0, 0)),
        in_progress=held,
        gauges=None if row.gauges is None else decode_gauges(row.gauges),
    )


def list_workers(tx: Tx, host_id: HostId | None) -> list[WorkerState]:
    """See ``ProcStore.workers``."""
    wanted = _WORKERS if host_id is None else _WORKERS.where(jobs.c.host_id == host_id)
    return [
        WorkerState(
            worker_id=row.worker_id,
            host_id=row.host_id,
            queue=row.queue,
            job_id=row.id,
            kind=row.kind,
            started_at=instant_or(row.started_at, EPOCH),
        )
        for row in tx.execute(wanted).all()
    ]
