"""The tables of progress, log lines and checkpoints. See the schema in ``base/tables.py``."""

from sqlalchemy import BigInteger, Column, Integer, Table

from forge_jobs.storage.sql.base.job_columns import TEXT
from forge_jobs.storage.sql.base.tables import metadata

__all__ = ["CHECKPOINT", "log_lines", "metadata", "progress", "steps"]

# Progress of an attempt of a job, and where the log of the attempt ends.
progress = Table(
    "forge_progress",
    metadata,
    Column("job_id", TEXT, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    # Of the last run of the attempt.
    Column("token", BigInteger, nullable=False),
    # JSON of Progress, NULL while the run has set none.
    Column("progress", TEXT),
    # Of the last line: the count in the run, the number in the attempt, and the bytes of all lines.
    Column("seq", BigInteger, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    postgresql_with={
        "fillfactor": 50,
        "autovacuum_vacuum_scale_factor": 0.01,
        "autovacuum_vacuum_threshold": 500,
        "autovacuum_vacuum_cost_delay": 0,
    },
)

log_lines = Table(
    "forge_log_lines",
    metadata,
    Column("job_id", TEXT, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("token", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("level", Integer, nullable=False),
    Column("text", TEXT, nullable=False),
    # Bytes of the attempt's lines before this one.
    Column("begins", BigInteger, nullable=False),
)

CHECKPOINT = ""
"""The step of a job's checkpoint. Steps of handlers have names."""

# Steps that handlers have taken in transactions of the program, and the checkpoint of a job.
steps = Table(
    "forge_steps",
    metadata,
    Column("job_id", TEXT, primary_key=True),
    Column("step", TEXT, primary_key=True),
    # Of the claim under which the step was taken.
    Column("token", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    # JSON of the checkpoint, NULL for a step.
    Column("value", TEXT),
)
