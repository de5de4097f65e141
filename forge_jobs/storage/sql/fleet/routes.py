"""What pods publish of kinds and their queues."""

from contextlib import suppress
from typing import Any

import msgspec
from sqlalchemy import BigInteger, bindparam, case, func, select, text

from forge_jobs.storage.salvage import UNREADABLE
from forge_jobs.storage.sql.base.tables import pods
from forge_jobs.storage.sql.base.transaction import Tx

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
