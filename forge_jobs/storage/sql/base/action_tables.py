"""The tables of operators' actions."""

from sqlalchemy import BigInteger, Column, Index, Table

from forge_jobs.storage.sql.base.job_columns import TEXT
from forge_jobs.storage.sql.base.tables import metadata

actions = Table(
    "forge_actions",
    metadata,
    Column("id", TEXT, primary_key=True),
    Column("at", BigInteger, nullable=False),
    # JSON of the record, without the time.
    Column("document", TEXT, nullable=False),
)

action_parts = Table(
    "forge_action_parts",
    metadata,
    Column("action_id", TEXT, primary_key=True),
    Column("queue", TEXT, primary_key=True),
    Column("state", TEXT, nullable=False),
    # The id of the last job visited, empty before the first.
    Column("cursor", TEXT, nullable=False),
    Column("changed", BigInteger, nullable=False),
    Column("requested", BigInteger, nullable=False),
    # JSON object: refusal -> number of jobs.
    Column("refused", TEXT, nullable=False),
)

action_jobs = Table(
    "forge_action_jobs",
    metadata,
    Column("action_id", TEXT, primary_key=True),
    Column("job_id", TEXT, primary_key=True),
    Column("at", BigInteger, nullable=False),
)
Index("forge_action_jobs_by_time", action_jobs.c.at)
