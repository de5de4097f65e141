"""The tables of failures in groups and of series. See the schema in ``base/tables.py``."""

from sqlalchemy import BigInteger, Column, Index, Table

from forge_jobs.storage.sql.base.job_columns import TEXT
from forge_jobs.storage.sql.base.tables import CHURNED, metadata

error_groups = Table(
    "forge_error_groups",
    metadata,
    Column("queue", TEXT, primary_key=True),
    # The fingerprint of the failures, "other" for those that have no group of their own.
    Column("id", TEXT, primary_key=True),
    Column("kind", TEXT, nullable=False),
    Column("type", TEXT, nullable=False),
    # Without its changing parts.
    Column("message", TEXT, nullable=False),
    Column("first_at", BigInteger, nullable=False),
    Column("last_at", BigInteger, nullable=False),
    # JSON lists: versions of pods, oldest first, and ids of jobs, newest first.
    Column("versions", TEXT, nullable=False),
    Column("jobs", TEXT, nullable=False),
    postgresql_with=CHURNED,
)
Index("forge_error_groups_by_time", error_groups.c.last_at, error_groups.c.queue, error_groups.c.id)

# The failures of a group in an hour.
error_hours = Table(
    "forge_error_hours",
    metadata,
    Column("id", TEXT, primary_key=True),
    Column("queue", TEXT, primary_key=True),
    Column("hour", BigInteger, primary_key=True),
    # JSON object: minute of the hour -> how many were retried, and how many died.
    Column("counts", TEXT, nullable=False),
    postgresql_with=CHURNED,
)
Index("forge_error_hours_by_hour", error_hours.c.hour)


def _series(name: str) -> Table:
    """Make a table of steps of a kind, of a queue (kind "") and of the whole store (queue "")."""
    table = Table(
        name,
        metadata,
        Column("queue", TEXT, primary_key=True),
        Column("kind", TEXT, primary_key=True),
        # The begin of the minute or hour. Of the hours, FOREVER is the total of all time.
        Column("at", BigInteger, primary_key=True),
        # JSON object of counters, and of Histogram counts.
        Column("counts", TEXT, nullable=False),
        Column("delay", TEXT, nullable=False),
        Column("processing", TEXT, nullable=False),
        Column("total", TEXT, nullable=False),
        # JSON list of DepthNumbers, NULL where no pod has led, and for a kind.
        Column("depth", TEXT),
        postgresql_with=CHURNED,
    )
    Index(f"{name}_by_time", table.c.at, table.c.queue)
    return table


# Both are written at once, so that no pass has to fold minutes.
series_minutes, series_hours = _series("forge_series_minutes"), _series("forge_series_hours")
