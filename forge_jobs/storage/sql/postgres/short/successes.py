"""Plain successes on Postgres: one statement locks the jobs in id order and ends them."""

from collections.abc import Sequence

from sqlalchemy import ARRAY, BigInteger, Text, bindparam, text

from forge_jobs.model.jobs import Claim
from forge_jobs.model.transitions import Transition
from forge_jobs.storage.sql.base.job_rows import Succeeded
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.hot.finalize import SUCCEED_FREE
from forge_jobs.storage.sql.postgres.short.exchanges import columns_of

_SUCCEED = text(SUCCEED_FREE).bindparams(
    bindparam("ids", type_=ARRAY(Text)),
    bindparam("queues", type_=ARRAY(Text)),
    bindparam("tokens", type_=ARRAY(BigInteger)),
    bindparam("results", type_=ARRAY(Text)),
    bindparam("owner", type_=Text),
    bindparam("now", type_=BigInteger),
)


def succeed(tx: Tx, items: Sequence[tuple[Claim, Transition]]) -> list[Succeeded]:
    """See ``Flavor.succeed``."""
    rows = tx.execute(_SUCCEED, {**columns_of(items), "now": tx.now})
    return [Succeeded(*row) for row in rows]
