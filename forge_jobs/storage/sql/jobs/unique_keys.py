"""Who holds a unique key: the active job of the queue that has it."""

from collections import defaultdict
from collections.abc import Iterable

from sqlalchemy import bindparam, select, text

from forge_jobs.model.ids import JobId
from forge_jobs.storage.sql.base.chunks import portions
from forge_jobs.storage.sql.base.lists import one_of
from forge_jobs.storage.sql.base.tables import ACTIVE, jobs
from forge_jobs.storage.sql.base.transaction import Tx

# Queue by queue: SQLite looks up a list of pairs by scanning. And without IS NOT NULL, which it
# would take for a range to scan; the list of keys implies it.
_HOLDERS = select(jobs.c.unique_key, jobs.c.id).where(
    jobs.c.queue == bindparam("queue"),
    one_of(jobs.c.unique_key, "keys"),
    text(ACTIVE),
)


def key_holders(tx: Tx, pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], JobId]:
    """The holders of those (queue, key) that are held."""
    by_queue: defaultdict[str, set[str]] = defaultdict(set)
    for queue, key in pairs:
        by_queue[queue].add(key)
    return {
        (queue, key): JobId(job_id)
        for queue, keys in sorted(by_queue.items())
        for portion in portions(sorted(keys))
        for key, job_id in tx.execute(_HOLDERS, {"queue": queue, "keys": portion})
    }
