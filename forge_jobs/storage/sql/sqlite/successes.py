"""Plain successes on SQLite: one statement for a batch, which is sent as one JSON text."""

from collections.abc import Sequence

import msgspec

from forge_jobs.model.jobs import Claim
from forge_jobs.model.transitions import Transition
from forge_jobs.storage.sql.base.job_rows import Succeeded
from forge_jobs.storage.sql.base.transaction import HotStatement, Tx
from forge_jobs.storage.sql.hot.finalize import SUCCEED

_SUCCEED = HotStatement.of(SUCCEED)


def succeed(tx: Tx, items: Sequence[tuple[Claim, Transition]]) -> Sequence[Succeeded]:
    """See ``Flavor.succeed``."""
    if not items:
        return ()
    listed = msgspec.json.encode(
        [(claim.job_id, claim.queue, claim.token, transition.result) for claim, transition in items]
    )
    values = {"items": listed.decode(), "owner": items[0][0].host_id, "now": tx.now}
    return tx.rows(_SUCCEED, values)
