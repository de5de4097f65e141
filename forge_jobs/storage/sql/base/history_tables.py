"""The tables of groups of failures. See the schema in ``base/tables.py``."""

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
