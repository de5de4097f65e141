"""Tables of unique keys: what is known of a key beside the jobs that hold it."""

from sqlalchemy import BigInteger, Column, Index, Table

from forge_jobs.storage.sql.base.job_columns import TEXT
from forge_jobs.storage.sql.base.tables import metadata

unique_windows = Table(
    "forge_unique_windows",
    metadata,
    # Until ends_at requests in mode cooldown are dropped, also when the job has ended or gone.
    Column("queue", TEXT, primary_key=True),
    Column("unique_key", TEXT, primary_key=True),
    Column("job_id", TEXT, nullable=False),
    Column("opened_at", BigInteger, nullable=False),
    Column("ends_at", BigInteger, nullable=False),
)
Index("forge_unique_windows_by_end", unique_windows.c.ends_at)

replacements = Table(
    "forge_replacements",
    metadata,
    # The request whose content another job has. Known until ends_at, for repeats of the request.
    Column("request_id", TEXT, primary_key=True),
    Column("job_id", TEXT, nullable=False),
    Column("ends_at", BigInteger, nullable=False),
)
Index("forge_replacements_by_end", replacements.c.ends_at)
