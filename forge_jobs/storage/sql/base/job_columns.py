"""The columns of a job: one list, with the uses of each column.

Statements and rows take the names of their columns from here. A new option of a job is one line
here, one in ``new_job_values`` and one in each record that shows the option, and a migration.
"""

from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Integer, Text, text
from sqlalchemy.dialects import postgresql

TEXT = Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
"""Compared byte by byte, as SQLite and Python do, in any locale of the database."""


def _job_column(
    name: str,
    kind: Any,
    uses: str = "",
    *,
    default: Any = None,
    primary_key: bool = False,
    nullable: bool = False,
) -> Column[Any]:
    return Column(
        name,
        kind,
        primary_key=primary_key,
        nullable=nullable,
        server_default=default,
        info={"uses": frozenset(uses.split())},
    )


# new:      an enqueue gives the value
# replaced: a request that replaces a waiting job gives the value anew
# claimed:  a worker gets the value with the claim
JOB_COLUMNS = (
    _job_column("id", TEXT, "new claimed", primary_key=True),
    _job_column("queue", TEXT, "new claimed"),
    _job_column("kind", TEXT, "new replaced claimed"),
    _job_column("payload", TEXT, "new replaced claimed"),
    _job_column("status", TEXT, "new"),
    _job_column("cause", TEXT, "new claimed"),
    _job_column("hold", TEXT, nullable=True),
    _job_column("priority", Integer, "new replaced claimed"),
    # When the job may be claimed. Blocked: the requested time, or the time of the enqueue.
    _job_column("run_at", BigInteger, "new replaced claimed"),
    _job_column("requested_run_at", BigInteger, "new replaced", nullable=True),
    _job_column("enqueued_at", BigInteger, "new claimed"),
    _job_column("expires_at", BigInteger, "new replaced", nullable=True),
    _job_column("timeout_us", BigInteger, "new replaced claimed", nullable=True),
    _job_column("attempt", Integer, "claimed", default="0"),
    _job_column("max_attempts", Integer, "new replaced claimed", nullable=True),
    _job_column("crashes", Integer, "claimed", default="0"),
    _job_column("snoozes", Integer, "claimed", default="0"),
    # The first snooze or throttle since the enqueue or the last requeue.
    _job_column("snoozed_at", BigInteger, "claimed", nullable=True),
    # The limit that the job waits for, or waited for last.
    _job_column("rate_limit", TEXT, "claimed", nullable=True),
    # Starts at enqueued_at. Each claim's token is its time, and one more than the token before at
    # least. settled_token is the last token whose owner ended the claim, by which a repeat of that
    # end is recognised. host_id then stays, for the pod is compared too.
    _job_column("token", BigInteger, "new claimed"),
    _job_column("settled_token", BigInteger, default="0"),
    _job_column("host_id", TEXT, default=""),
    _job_column("worker_id", TEXT, default=""),
    _job_column("claimed_at", BigInteger, nullable=True),
    _job_column("started_at", BigInteger, nullable=True),
    _job_column("heartbeat_at", BigInteger, nullable=True),
    _job_column("finished_at", BigInteger, nullable=True),
    _job_column("cancel_requested", Boolean, "claimed", default=text("false")),
    _job_column("unique_key", TEXT, "new", nullable=True),
    _job_column("has_children", Boolean, "new", default=text("false")),
    _job_column("tags", TEXT, "new replaced claimed", default="[]"),
    _job_column("metadata", TEXT, "new replaced claimed", default="{}"),
    _job_column("trace", TEXT, "new replaced claimed", default=""),
    _job_column("schedule", TEXT, "new claimed", default=""),
    _job_column("fingerprint", TEXT, "new replaced", default=""),
    _job_column("keep_result", Boolean, "new replaced claimed", default=text("true")),
    _job_column("result_ttl_us", BigInteger, "new replaced", nullable=True),
    _job_column("result", TEXT, nullable=True),
    _job_column("result_expires_at", BigInteger, nullable=True),
    # JSON list of ErrorRecord, oldest first.
    _job_column("errors", TEXT, default="[]"),
    # The group of the newest failure.
    _job_column("error_group", TEXT, nullable=True),
    # The limit that the job counts toward while in progress. NULL for none.
    _job_column("limit_name", TEXT, "new replaced", nullable=True),
    _job_column("limit_key", TEXT, "new replaced", default=""),
)


def _used(use: str) -> tuple[str, ...]:
    return tuple(str(column.name) for column in JOB_COLUMNS if use in column.info["uses"])


NEW, REPLACED_WITH, CLAIMED_WITH = _used("new"), _used("replaced"), _used("claimed")
"""The names of the columns by use, in the order of the table."""
