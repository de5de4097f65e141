"""Pods and workers as people see them."""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Row, bindparam, case, func, select, text

from forge_jobs.clock import EPOCH
from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import Pod, PodState, Slots, WorkerState, check_concurrency
from forge_jobs.storage.salvage import (
    UNREADABLE,
    Fields,
    instant_or,
    log_spoilt_pod,
    salvaged_pod,
    truth,
)
from forge_jobs.storage.sql.base.tables import CLAIMED, jobs, pods, slots
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.fleet.allocations import slots_of
from forge_jobs.storage.sql.fleet.gauges import decode_gauges

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
        jobs.c.worker_id,
        jobs.c.host_id,
        jobs.c.queue,
        jobs.c.id,
        jobs.c.kind,
        jobs.c.started_at,
        jobs.c.cancel_requested,
    )
    .where(text(CLAIMED), jobs.c.started_at.is_not(None))
    .order_by(jobs.c.host_id, jobs.c.queue, jobs.c.id)
)


def list_pods(tx: Tx) -> list[PodState]:
    """See ``ProcStore.pods``."""
    by_pod: defaultdict[str, dict[str, Slots]] = defaultdict(dict)
    for row in tx.execute(_SLOTS):
        by_pod[row.host_id][row.queue] = slots_of(row)
    held: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for row in tx.execute(_HOLDINGS):
        held[row.host_id][row.queue] = row.claims
    ordered = tx.execute(_PODS.order_by(pods.c.started_at, pods.c.host_id))
    return [_pod_state(row, by_pod[row.host_id], held[row.host_id], tx.now) for row in ordered]


def _pod_state(
    row: Row[Any], of_pod: Mapping[str, Slots], held: Mapping[str, int], now: int
) -> PodState:
    read = Fields({**row._mapping})
    remaining = max(0, read.number("lease_until") - now)
    pod = PodState(
        pod=pod_of(read, row.host_id, read.read("routes", decode_routes, {})),
        started_at=read.instant("started_at"),
        last_beat_at=read.instant("last_beat_at"),
        lease_remaining=timedelta(microseconds=remaining),
        draining=read.read("draining", truth, False),
        quiet=read.read("quiet", truth, False),
        slots=of_pod if remaining else dict.fromkeys(of_pod, Slots(0, 0)),
        in_progress=held,
        gauges=None if row.gauges is None else read.read("gauges", decode_gauges, None),
    )
    return salvaged_pod(pod, read.problems)


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
            cancel_requested=bool(row.cancel_requested),
        )
        for row in tx.execute(wanted).all()
    ]


_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode
_COLUMNS = (
    pods.c.host_id,
    pods.c.label,
    pods.c.queues,
    pods.c.kinds,
    pods.c.version,
    pods.c.process_id,
    pods.c.concurrency,
)
_LIVE = select(*_COLUMNS).where(pods.c.lease_until > bindparam("now"))


def pod_of(read: Fields, host_id: str, routes: Mapping[str, str]) -> Pod:
    """Return the pod of a row, with its routes as the caller has read them."""
    return Pod(
        host_id=HostId(host_id),
        label=read.text("label"),
        queues=read.read("queues", _decode_names, ()),
        kinds=read.read("kinds", _decode_names, ()),
        version=read.text("version"),
        process_id=read.number("process_id"),
        concurrency=read.read("concurrency", _concurrency, None),
        routes=routes,
    )


def live_pods(tx: Tx) -> list[Pod]:
    """See ``ProcStore.live_pods``."""
    found = []
    for row in tx.execute(_LIVE, {"now": tx.now}):
        read = Fields({**row._mapping})
        found.append(pod_of(read, row.host_id, {}))
        if read.problems:
            log_spoilt_pod(row.host_id, read.problems)
    return found


def _concurrency(stored: Any) -> int | None:
    return None if stored is None else check_concurrency(stored)


decode_routes = msgspec.json.Decoder(dict[str, str]).decode
_decode_kinds = msgspec.json.Decoder(tuple[str, ...]).decode

_NOW: Any = bindparam("now", type_=BigInteger)
# Pods of one release publish the same. The last row counts.
_PUBLISHED = (
    select(
        pods.c.kinds,
        pods.c.routes,
        case((pods.c.lease_until > _NOW, 1), else_=0).label("lives"),
    )
    .group_by(pods.c.kinds, pods.c.routes, text("lives"))
    .order_by(text("lives"), func.max(pods.c.started_at))
)


def read_routes(tx: Tx) -> dict[str, str | None]:
    """See ``ProcStore.routes``."""
    found: dict[str, str | None] = {}
    for row in tx.execute(_PUBLISHED, {"now": tx.now}):
        # The record of the pod names the problem.
        with suppress(*UNREADABLE):
            found.update(dict.fromkeys(_decode_kinds(row.kinds)))
        with suppress(*UNREADABLE):
            found.update(decode_routes(row.routes))
    return found
