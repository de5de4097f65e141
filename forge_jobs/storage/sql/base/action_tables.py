"""The tables of operators' actions, of requests to pods, and of what pods say of their kinds."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Table, text

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

pod_requests = Table(
    "forge_pod_requests",
    metadata,
    Column("id", TEXT, primary_key=True),
    Column("host_id", TEXT, nullable=False),
    # The registration that was asked.
    Column("epoch", TEXT, nullable=False),
    Column("verb", TEXT, nullable=False),
    Column("asked_by", TEXT, nullable=False),
    Column("asked_at", BigInteger, nullable=False),
    # No pod hears of the request from then on.
    Column("until", BigInteger, nullable=False),
    # NULL before.
    Column("heard_at", BigInteger),
    Column("answered_at", BigInteger),
    Column("done", Boolean, nullable=False, server_default=text("false")),
    Column("answer", TEXT, nullable=False, server_default=""),
)
Index("forge_pod_requests_by_pod", pod_requests.c.host_id)

kinds = Table(
    "forge_kinds",
    metadata,
    Column("kind", TEXT, primary_key=True),
    # JSON, for operators.
    Column("document", TEXT, nullable=False),
    Column("published_at", BigInteger, nullable=False),
)
