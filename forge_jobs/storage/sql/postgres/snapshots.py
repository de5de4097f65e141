"""Transactions that keep dead rows where they are."""

from sqlalchemy import text

from forge_jobs.storage.protocols import OpenTransactions
from forge_jobs.storage.sql.base.transaction import Tx

# Neither the database's own workers nor sessions in a transaction without a snapshot or a change.
# These columns of other roles' sessions are visible to every role, the start time only to some.
_OPEN = text(
    "SELECT coalesce(max(clock_timestamp() - xact_start), interval '0') AS oldest,"
    " count(*) FILTER (WHERE xact_start IS NULL) AS hidden"
    " FROM pg_stat_activity"
    " WHERE datname = current_database() AND usesysid IS NOT NULL AND pid <> pg_backend_pid()"
    " AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)"
)


def open_transactions(tx: Tx) -> OpenTransactions:
    """See ``Storage``."""
    found = tx.execute(_OPEN).one()
    return OpenTransactions(oldest=found.oldest, hidden=found.hidden)
