"""Renews claims for a beat, without waiting for locks."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ARRAY, BigInteger, Text, bindparam, text

from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.hot.heartbeat import RENEW_FREE

_RENEW = text(RENEW_FREE).bindparams(
    bindparam("job", type_=ARRAY(Text)),
    bindparam("held", type_=ARRAY(BigInteger)),
    bindparam("worker", type_=ARRAY(Text)),
    bindparam("now", type_=BigInteger),
)


def renew_claims(tx: Tx, renewals: Sequence[Mapping[str, Any]]) -> set[str]:
    """See ``Flavor.renew_claims``."""
    if not renewals:
        return set()
    columns = {name: [one[name] for one in renewals] for name in ("job", "held", "worker")}
    return set(tx.execute(_RENEW, {**columns, "now": tx.now}).scalars())
