"""Pods as they describe themselves."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from sqlalchemy import BigInteger, bindparam, case, func, select, text

from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import Pod
from forge_jobs.model.queues import check_concurrency
from forge_jobs.storage.pods import log_spoilt_pod
from forge_jobs.storage.salvage import UNREADABLE, Fields
from forge_jobs.storage.sql.base.tables import pods
from forge_jobs.storage.sql.base.transaction import Tx

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
    """A row of the table of pods, with its routes as the caller has read them."""
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
        # The record of the pod says what is wrong with it.
        with suppress(*UNREADABLE):
            found.update(dict.fromkeys(_decode_kinds(row.kinds)))
        with suppress(*UNREADABLE):
            found.update(decode_routes(row.routes))
    return found
