"""The schema, for SQLite and Postgres alike.

Instants are microseconds since the epoch (UTC) and durations microseconds, both BIGINT: exact,
sortable, the same on both. Statuses are the text of their enum, JSON is text kept byte for byte.
Every name starts with ``forge_``, because the tables may live beside an application's own.

Index predicates are spelled into the SQL. A planner uses a partial index only when the query's text
contains the status, so statements repeat these fragments word for word.
"""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, MetaData, Table, text

from forge_jobs.storage.sql.base.job_columns import JOB_COLUMNS, TEXT

metadata = MetaData()

SERIAL = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows automatically only under the plain name INTEGER."""

_HOT = {
    # Room on each page for the next versions of the page's rows, so that a beat writes to no index.
    "fillfactor": 70,
    # By count where the table is small, and by a hundredth where the table is big. The default of a
    # fifth would let a fifth of a million finished jobs pile up. A fixed 2,000 rows of ten million
    # would be reached each minute, and each vacuum and analyze would read gigabytes.
    "autovacuum_vacuum_scale_factor": 0.01,
    "autovacuum_vacuum_threshold": 2000,
    "autovacuum_analyze_scale_factor": 0.02,
    "autovacuum_analyze_threshold": 2000,
    "autovacuum_vacuum_cost_delay": 0,
}
CHURNED = {
    "fillfactor": 50,
    "autovacuum_vacuum_scale_factor": 0.01,
    "autovacuum_vacuum_threshold": 500,
    "autovacuum_vacuum_cost_delay": 0,
}

READY = "status IN ('pending', 'failed') AND hold IS NULL"
WAITING = "status IN ('blocked', 'pending', 'failed')"
ACTIVE = "status IN ('blocked', 'pending', 'in_progress', 'failed')"
CLAIMED = "status = 'in_progress'"
FINISHED = "status IN ('done', 'dead', 'cancelled')"
PARKED = "hold = 'limit'"
SET_ASIDE = "hold IN ('unknown_kind', 'unreadable')"
"""Held jobs without those that wait for a limit or a strike, of which there may be 100,000."""
STRUCK = "hold = 'struck'"
_LIMITED = f"{CLAIMED} AND limit_name IS NOT NULL"

LINKED = "link IN ('live', 'told')"


jobs = Table("forge_jobs", metadata, *JOB_COLUMNS, postgresql_with=_HOT)


def _job_index(
    name: str, *columns: str, where: str, unique: bool = False, deduplicates: bool = True
) -> Index:
    return Index(
        f"forge_jobs_{name}",
        *(jobs.c[column] for column in columns),
        unique=unique,
        sqlite_where=text(where),
        postgresql_where=text(where),
        postgresql_with={} if deduplicates else {"deduplicate_items": "off"},
    )


_job_index("ready", "queue", "priority", "run_at", "id", "kind", where=READY)
# For claims that meet jobs of other pods' kinds.
_job_index("ready_by_kind", "queue", "kind", "priority", "run_at", "id", where=READY)
_job_index("set_aside", "queue", "kind", where=SET_ASIDE)
_job_index(
    "unique", "queue", "unique_key", where=f"unique_key IS NOT NULL AND {ACTIVE}", unique=True
)
# No index on heartbeat_at: every beat would have to write to the index. The claims are few.
_job_index("owned", "host_id", "queue", "id", where=CLAIMED)
_job_index("expiring", "expires_at", "id", where=f"expires_at IS NOT NULL AND {WAITING}")
_job_index("finished", "queue", "status", "finished_at", "id", where=FINISHED)
_job_index("results", "result_expires_at", where="result_expires_at IS NOT NULL")
_job_index("scheduled", "schedule", where=f"schedule <> '' AND {ACTIVE}")
_job_index("keyed", "unique_key", where="unique_key IS NOT NULL")
_job_index("by_error", "error_group", "id", where="error_group IS NOT NULL")
# Claims add an entry each, and with few keys most are equal.
_job_index("permits", "queue", "limit_name", "limit_key", where=_LIMITED, deduplicates=False)
_job_index("parked", "queue", "limit_name", "limit_key", "priority", "run_at", "id", where=PARKED)
# The mark of the strike is in rate_limit.
_job_index("struck", "rate_limit", "queue", "priority", "run_at", "id", where=STRUCK)
Index("forge_jobs_by_queue", jobs.c.queue, jobs.c.status, jobs.c.id)

edges = Table(
    "forge_edges",
    metadata,
    Column("child_id", TEXT, primary_key=True),
    Column("parent_id", TEXT, primary_key=True),
    Column("child_queue", TEXT, nullable=False),
    Column("on_failure", TEXT, nullable=False),
    # The state of the parent for the child: open, held or settled, see model.edges.
    Column("state", TEXT, nullable=False, server_default="open"),
    # live: the parent's next end will make a handover. told: a handover is under way. left: one is
    # under way, and the parent was removed. cut: no handover can come any more.
    Column("link", TEXT, nullable=False, server_default="live"),
    postgresql_with=CHURNED,
)
# Of all edges, so that the end of a parent, which changes the link, writes to no index.
Index("forge_edges_of_parent", edges.c.parent_id, edges.c.child_id)

handovers = Table(
    "forge_handovers",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("queue", TEXT, nullable=False),
    Column("child_id", TEXT, nullable=False),
    Column("parent_id", TEXT, nullable=False),
    Column("parent_status", TEXT, nullable=False),
    Column("on_failure", TEXT, nullable=False),
    postgresql_with=CHURNED,
    sqlite_autoincrement=True,
)

# The last job of each sequence, as long as that job is stored.
sequences = Table(
    "forge_sequences",
    metadata,
    # The queue and the key, with a line break between.
    Column("line", TEXT, primary_key=True),
    # "" for a moment, while the first job is stored.
    Column("job_id", TEXT, nullable=False),
    postgresql_with=CHURNED,
)
Index("forge_sequences_by_job", sequences.c.job_id)

# The stored jobs of sequences, by which those that wait again find their sequence.
members = Table(
    "forge_members",
    metadata,
    Column("job_id", TEXT, primary_key=True),
    Column("line", TEXT, nullable=False),
    Column("on_failure", TEXT, nullable=False),
    postgresql_with=CHURNED,
)

queues = Table(
    "forge_queues",
    metadata,
    Column("name", TEXT, primary_key=True),
    Column("max_workers", Integer, nullable=False),
    # JSON of CooldownPolicy and Retention, durations as ISO 8601 to the microsecond.
    Column("cooldown", TEXT, nullable=False),
    Column("retention", TEXT, nullable=False),
    # JSON of a retry policy. null: the runtime's own.
    Column("retry", TEXT, nullable=False),
    # JSON list of setting names.
    Column("overridden", TEXT, nullable=False, server_default="[]"),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    # NULL while the queue is not paused.
    Column("paused_at", BigInteger),
    # End of the current or last cool-down, NULL before the first.
    Column("cooldown_until", BigInteger),
    Column("cooldown_level", Integer, nullable=False, server_default="0"),
    Column("allocation_version", BigInteger, nullable=False, server_default="0"),
    # The queue for letters of jobs that die here, "" for none.
    Column("dead_letter", TEXT, nullable=False, server_default=""),
    # As "95% within 30s", "" for none.
    Column("objective", TEXT, nullable=False, server_default=""),
    # JSON of QueueSettings as code declared them last. NULL where no code did.
    Column("declared", TEXT),
    postgresql_with=CHURNED,
)

pods = Table(
    "forge_pods",
    metadata,
    Column("host_id", TEXT, primary_key=True),
    Column("epoch", TEXT, nullable=False),
    Column("label", TEXT, nullable=False),
    Column("version", TEXT, nullable=False),
    Column("process_id", Integer, nullable=False),
    # JSON lists.
    Column("queues", TEXT, nullable=False),
    Column("kinds", TEXT, nullable=False),
    # Handlers at once, over all queues. NULL: as many as the pod has slots.
    Column("concurrency", Integer),
    # JSON object, kind -> queue.
    Column("routes", TEXT, nullable=False, server_default="{}"),
    Column("started_at", BigInteger, nullable=False),
    Column("last_beat_at", BigInteger, nullable=False),
    Column("lease_until", BigInteger, nullable=False),
    Column("draining", Boolean, nullable=False, server_default=text("false")),
    # Drains by request, without an end.
    Column("quiet", Boolean, nullable=False, server_default=text("false")),
    # JSON of PodGauges, NULL before the first.
    Column("gauges", TEXT),
    postgresql_with=CHURNED,
)

slots = Table(
    "forge_slots",
    metadata,
    Column("queue", TEXT, primary_key=True),
    Column("host_id", TEXT, primary_key=True),
    # The epoch of the registration. A row of an older epoch is void.
    Column("epoch", TEXT, nullable=False),
    Column("target", Integer, nullable=False, server_default="0"),
    Column("granted", Integer, nullable=False, server_default="0"),
    postgresql_with=CHURNED,
)
Index("forge_slots_by_pod", slots.c.host_id)

noted_beats = Table(
    "forge_noted_beats",
    metadata,
    # Beats for claims whose jobs a caller's transaction had locked.
    Column("job_id", TEXT, primary_key=True),
    Column("token", BigInteger, nullable=False),
    Column("beat_at", BigInteger, nullable=False),
    postgresql_with=CHURNED,
)

leader = Table(
    "forge_leader",
    metadata,
    # One row, "leader".
    Column("name", TEXT, primary_key=True),
    Column("host_id", TEXT, nullable=False),
    Column("term", BigInteger, nullable=False),
    Column("renewed_at", BigInteger, nullable=False),
    Column("lease_until", BigInteger, nullable=False),
    postgresql_with=CHURNED,
)

rate_limits = Table(
    "forge_rate_limits",
    metadata,
    Column("scope", TEXT, primary_key=True),
    Column("capacity", BigInteger, nullable=False),
    Column("period_us", BigInteger, nullable=False),
    # The state of the bucket, see the module rate_limits.
    Column("level", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    # The last turn that was given to a job which waits for tokens.
    Column("last_turn_at", BigInteger, nullable=False, server_default="0"),
    Column("overridden", Boolean, nullable=False, server_default=text("false")),
    postgresql_with=CHURNED,
)

limits = Table(
    "forge_limits",
    metadata,
    Column("queue", TEXT, primary_key=True),
    Column("name", TEXT, primary_key=True),
    Column("at_most", BigInteger, nullable=False),
    Column("share", BigInteger),  # NULL: the keys take no turns.
    Column("overridden", Boolean, nullable=False, server_default=text("false")),
    postgresql_with=CHURNED,
)

strikes = Table(
    "forge_strikes",
    metadata,
    Column("name", TEXT, primary_key=True),
    Column("rule", TEXT, nullable=False),  # JSON text, see ``StoredStrike``.
    Column("at", BigInteger, nullable=False),
)

# Only claims, which hold the lock of the queue, delete rows. So no end of a job waits for another.
openings = Table(
    "forge_openings",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("queue", TEXT, nullable=False),
    Column("limit_name", TEXT, nullable=False),
    Column("limit_key", TEXT, nullable=False),
    Column("since", BigInteger, nullable=False, server_default="0"),  # The turn before.
    postgresql_with=CHURNED,
    sqlite_autoincrement=True,
)
# On PostgreSQL a claim looks openings up by limit and by key. SQLite reads them in order alone.
_OF_LIMIT = openings.c.queue, openings.c.limit_name, openings.c.id
_OF_KEY = text(r"(queue || E'\n' || limit_name || E'\n' || limit_key)")
Index("forge_openings_by_queue", openings.c.queue, openings.c.id).ddl_if(dialect="sqlite")
Index("forge_openings_by_limit", *_OF_LIMIT).ddl_if(dialect="postgresql")
Index("forge_openings_by_key", _OF_KEY, _table=openings).ddl_if(dialect="postgresql")

schedules = Table(
    "forge_schedules",
    metadata,
    Column("name", TEXT, primary_key=True),
    # JSON of ScheduleSpec.
    Column("spec", TEXT, nullable=False),
    Column("version", BigInteger, nullable=False, server_default="1"),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    Column("edited", Boolean, nullable=False, server_default=text("false")),
    Column("deleted", Boolean, nullable=False, server_default=text("false")),
    Column("next_at", BigInteger),
    Column("last_fired_at", BigInteger),
    Column("fired", BigInteger, nullable=False, server_default="0"),
    Column("skipped", BigInteger, nullable=False, server_default="0"),
    Column("error", TEXT, nullable=False, server_default=""),
)
Index("forge_schedules_due", schedules.c.next_at)

counters = Table(
    "forge_counters",
    metadata,
    Column("queue", TEXT, primary_key=True),
    Column("minute", BigInteger, primary_key=True),
    # "" once rolled up, and for changes that no pod made.
    Column("host_id", TEXT, primary_key=True),
    # Which writer's row: concurrent writers never wait for each other's. "" once rolled up.
    Column("part", TEXT, primary_key=True),
    Column("name", TEXT, primary_key=True),
    Column("count", BigInteger, nullable=False),
    postgresql_with=CHURNED,
)
Index("forge_counters_by_minute", counters.c.minute)
# The rows that a roll-up has still to fold, however many were folded before.
Index(
    "forge_counters_unfolded",
    counters.c.minute,
    sqlite_where=text("part <> ''"),
    postgresql_where=text("part <> ''"),
)

latencies = Table(
    "forge_latencies",
    metadata,
    Column("queue", TEXT, primary_key=True),
    Column("minute", BigInteger, primary_key=True),
    # "" once rolled up.
    Column("host_id", TEXT, primary_key=True),
    # JSON of Histogram counts.
    Column("processing", TEXT, nullable=False),
    Column("total", TEXT, nullable=False),
)
Index("forge_latencies_by_minute", latencies.c.minute)
Index(
    "forge_latencies_unfolded",
    latencies.c.minute,
    sqlite_where=text("host_id <> ''"),
    postgresql_where=text("host_id <> ''"),
)

gauges = Table(
    "forge_gauges",
    metadata,
    Column("minute", BigInteger, primary_key=True),
    Column("host_id", TEXT, primary_key=True),
    # JSON of PodGauges.
    Column("gauges", TEXT, nullable=False),
)

# Minutes past their retention: one row per hour.
hours = Table(
    "forge_hours",
    metadata,
    Column("queue", TEXT, primary_key=True),
    Column("hour", BigInteger, primary_key=True),
    # JSON object of counters, and of Histogram counts.
    Column("counts", TEXT, nullable=False),
    Column("processing", TEXT, nullable=False),
    Column("total", TEXT, nullable=False),
)
Index("forge_hours_by_hour", hours.c.hour)

pod_hours = Table(
    "forge_pod_hours",
    metadata,
    Column("hour", BigInteger, primary_key=True),
    Column("host_id", TEXT, primary_key=True),
    # JSON of PodGauges.
    Column("gauges", TEXT, nullable=False),
)

events = Table(
    "forge_events",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("at", BigInteger, nullable=False),
    Column("kind", TEXT, nullable=False),
    Column("queue", TEXT, nullable=False),
    Column("job_id", TEXT, nullable=False),
    Column("host_id", TEXT, nullable=False),
    Column("detail", TEXT, nullable=False),
)
Index("forge_events_by_time", events.c.at, events.c.id)
Index("forge_events_by_job", events.c.job_id, events.c.at, events.c.id)
Index("forge_events_by_queue", events.c.queue, events.c.at, events.c.id)

signals = Table(
    "forge_signals",
    metadata,
    # "handover", "letters", "beat", "fleet", or "queue:" and a queue's name.
    Column("topic", TEXT, primary_key=True),
    # Grows by one with each commit that wakes waiters of the topic, which other processes watch.
    Column("seq", BigInteger, nullable=False),
)
