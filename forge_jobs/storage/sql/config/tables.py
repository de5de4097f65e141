"""The table of the buckets that keys of rate limits have."""

from sqlalchemy import BigInteger, Column, Index, Table

from forge_jobs.storage.sql.base.job_columns import TEXT
from forge_jobs.storage.sql.base.tables import CHURNED, metadata

rate_keys = Table(
    "forge_rate_keys",
    metadata,
    Column("scope", TEXT, primary_key=True),
    Column("key", TEXT, primary_key=True),
    # Of the rate limit when the level was written.
    Column("capacity", BigInteger, nullable=False),
    Column("period_us", BigInteger, nullable=False),
    Column("level", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("last_turn_at", BigInteger, nullable=False),
    # From then on the bucket is full and the last turn is over: the row says nothing any more.
    Column("ends_at", BigInteger, nullable=False),
    postgresql_with=CHURNED,
)
Index("forge_rate_keys_by_end", rate_keys.c.ends_at)
