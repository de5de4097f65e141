"""Pods as they describe themselves."""

from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import bindparam, select

from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import Pod
from forge_jobs.storage.sql.tables import pods
from forge_jobs.storage.sql.transaction import Tx

_names = msgspec.json.Decoder(tuple[str, ...]).decode

_LIVE = select(
    pods.c.host_id,
    pods.c.label,
    pods.c.queues,
    pods.c.kinds,
    pods.c.version,
    pods.c.process_id,
    pods.c.concurrency,
).where(pods.c.lease_until > bindparam("now"))


def pod_of(row: Any, routes: Mapping[str, str]) -> Pod:
    """A row of the table of pods, with its routes as the caller has read them."""
    return Pod(
        host_id=HostId(row.host_id),
        label=row.label,
        queues=_names(row.queues),
        kinds=_names(row.kinds),
        version=row.version,
        process_id=row.process_id,
        concurrency=row.concurrency,
        routes=routes,
    )


def live_pods(tx: Tx) -> list[Pod]:
    """See ``ProcStore.live_pods``."""
    return [pod_of(row, {}) for row in tx.execute(_LIVE, {"now": tx.now})]
