"""The tables of letters: what jobs that died leave for another queue, and jobs for another store,
until they are stored there."""

from sqlalchemy import BigInteger, Column, Index, Integer, Table

from forge_jobs.storage.sql.base.job_columns import TEXT
from forge_jobs.storage.sql.base.tables import CHURNED, SERIAL, metadata

letters = Table(
    "forge_letters",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    # The queue that the letter is for.
    Column("queue", TEXT, nullable=False),
    # Of the dead job, as they were at the end. token: of the claim that ended so.
    Column("origin_queue", TEXT, nullable=False),
    Column("origin_id", TEXT, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("kind", TEXT, nullable=False),
    Column("payload", TEXT, nullable=False),
    Column("cause", TEXT, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("tags", TEXT, nullable=False),
    Column("metadata", TEXT, nullable=False),
    Column("trace", TEXT, nullable=False),
    Column("schedule", TEXT, nullable=False),
    Column("errors", TEXT, nullable=False),
    Column("enqueued_at", BigInteger, nullable=False),
    Column("died_at", BigInteger, nullable=False),
    postgresql_with=CHURNED,
    sqlite_autoincrement=True,
)

outbox = Table(
    "forge_outbox",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    # The name of the store that the job is for, as an Outbox names it.
    Column("destination", TEXT, nullable=False),
    Column("job_id", TEXT, nullable=False),
    Column("queue", TEXT, nullable=False),
    Column("kind", TEXT, nullable=False),
    # A NewJob.
    Column("job", TEXT, nullable=False),
    # Why the job is set aside.
    Column("problem", TEXT, nullable=False, server_default=""),
    Column("written_at", BigInteger, nullable=False),
    postgresql_with=CHURNED,
    sqlite_autoincrement=True,
)
# A relay reads behind the records of other stores, and explain looks for one job.
Index("forge_outbox_by_destination", outbox.c.destination, outbox.c.id)
Index("forge_outbox_by_job", outbox.c.job_id)
