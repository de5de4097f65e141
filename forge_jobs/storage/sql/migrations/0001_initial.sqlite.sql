CREATE TABLE forge_counters (
    queue TEXT NOT NULL,
    minute BIGINT NOT NULL,
    host_id TEXT NOT NULL,
    part TEXT NOT NULL,
    name TEXT NOT NULL,
    count BIGINT NOT NULL,
    PRIMARY KEY (queue, minute, host_id, part, name)
);

CREATE INDEX forge_counters_by_minute ON forge_counters (minute);

CREATE INDEX forge_counters_unfolded ON forge_counters (minute) WHERE part <> '';

CREATE TABLE forge_edges (
    child_id TEXT NOT NULL,
    parent_id TEXT NOT NULL,
    child_queue TEXT NOT NULL,
    on_failure TEXT NOT NULL,
    state TEXT DEFAULT 'open' NOT NULL,
    link TEXT DEFAULT 'live' NOT NULL,
    PRIMARY KEY (child_id, parent_id)
);

CREATE INDEX forge_edges_by_parent ON forge_edges (parent_id) WHERE link IN ('live', 'told');

CREATE TABLE forge_events (
    id INTEGER NOT NULL,
    at BIGINT NOT NULL,
    kind TEXT NOT NULL,
    queue TEXT NOT NULL,
    job_id TEXT NOT NULL,
    host_id TEXT NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (id)
);

CREATE INDEX forge_events_by_job ON forge_events (job_id, at, id);

CREATE INDEX forge_events_by_queue ON forge_events (queue, at, id);

CREATE INDEX forge_events_by_time ON forge_events (at, id);

CREATE TABLE forge_gauges (
    minute BIGINT NOT NULL,
    host_id TEXT NOT NULL,
    gauges TEXT NOT NULL,
    PRIMARY KEY (minute, host_id)
);

CREATE TABLE forge_handovers (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL,
    child_id TEXT NOT NULL,
    parent_id TEXT NOT NULL,
    parent_status TEXT NOT NULL,
    on_failure TEXT NOT NULL
);

CREATE TABLE forge_jobs (
    id TEXT NOT NULL,
    queue TEXT NOT NULL,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL,
    status TEXT NOT NULL,
    cause TEXT NOT NULL,
    hold TEXT,
    priority INTEGER NOT NULL,
    run_at BIGINT NOT NULL,
    requested_run_at BIGINT,
    enqueued_at BIGINT NOT NULL,
    expires_at BIGINT,
    timeout_us BIGINT,
    attempt INTEGER DEFAULT '0' NOT NULL,
    max_attempts INTEGER,
    crashes INTEGER DEFAULT '0' NOT NULL,
    snoozes INTEGER DEFAULT '0' NOT NULL,
    snoozed_at BIGINT,
    rate_limit TEXT,
    token BIGINT NOT NULL,
    settled_token BIGINT DEFAULT '0' NOT NULL,
    host_id TEXT DEFAULT '' NOT NULL,
    worker_id TEXT DEFAULT '' NOT NULL,
    claimed_at BIGINT,
    started_at BIGINT,
    heartbeat_at BIGINT,
    finished_at BIGINT,
    cancel_requested BOOLEAN DEFAULT false NOT NULL,
    unique_key TEXT,
    has_children BOOLEAN DEFAULT false NOT NULL,
    tags TEXT DEFAULT '[]' NOT NULL,
    metadata TEXT DEFAULT '{}' NOT NULL,
    trace TEXT DEFAULT '' NOT NULL,
    schedule TEXT DEFAULT '' NOT NULL,
    fingerprint TEXT DEFAULT '' NOT NULL,
    keep_result BOOLEAN DEFAULT true NOT NULL,
    result_ttl_us BIGINT,
    result TEXT,
    result_expires_at BIGINT,
    errors TEXT DEFAULT '[]' NOT NULL,
    PRIMARY KEY (id)
);

CREATE INDEX forge_jobs_by_queue ON forge_jobs (queue, status, id);

CREATE INDEX forge_jobs_expiring ON forge_jobs (expires_at, id) WHERE expires_at IS NOT NULL AND status IN ('blocked', 'pending', 'failed');

CREATE INDEX forge_jobs_finished ON forge_jobs (queue, status, finished_at, id) WHERE status IN ('done', 'dead', 'cancelled');

CREATE INDEX forge_jobs_held ON forge_jobs (queue, kind) WHERE hold IS NOT NULL;

CREATE INDEX forge_jobs_keyed ON forge_jobs (unique_key) WHERE unique_key IS NOT NULL;

CREATE INDEX forge_jobs_owned ON forge_jobs (host_id, queue, id) WHERE status = 'in_progress';

CREATE INDEX forge_jobs_ready ON forge_jobs (queue, priority, run_at, id, kind) WHERE status IN ('pending', 'failed') AND hold IS NULL;

CREATE INDEX forge_jobs_results ON forge_jobs (result_expires_at) WHERE result_expires_at IS NOT NULL;

CREATE INDEX forge_jobs_scheduled ON forge_jobs (schedule) WHERE schedule <> '' AND status IN ('blocked', 'pending', 'in_progress', 'failed');

CREATE UNIQUE INDEX forge_jobs_unique ON forge_jobs (queue, unique_key) WHERE unique_key IS NOT NULL AND status IN ('blocked', 'pending', 'in_progress', 'failed');

CREATE TABLE forge_latencies (
    queue TEXT NOT NULL,
    minute BIGINT NOT NULL,
    host_id TEXT NOT NULL,
    processing TEXT NOT NULL,
    total TEXT NOT NULL,
    PRIMARY KEY (queue, minute, host_id)
);

CREATE INDEX forge_latencies_by_minute ON forge_latencies (minute);

CREATE INDEX forge_latencies_unfolded ON forge_latencies (minute) WHERE host_id <> '';

CREATE TABLE forge_leader (
    name TEXT NOT NULL,
    host_id TEXT NOT NULL,
    term BIGINT NOT NULL,
    renewed_at BIGINT NOT NULL,
    lease_until BIGINT NOT NULL,
    PRIMARY KEY (name)
);

CREATE TABLE forge_pods (
    host_id TEXT NOT NULL,
    epoch TEXT NOT NULL,
    label TEXT NOT NULL,
    version TEXT NOT NULL,
    process_id INTEGER NOT NULL,
    queues TEXT NOT NULL,
    kinds TEXT NOT NULL,
    concurrency INTEGER,
    routes TEXT DEFAULT '{}' NOT NULL,
    started_at BIGINT NOT NULL,
    last_beat_at BIGINT NOT NULL,
    lease_until BIGINT NOT NULL,
    draining BOOLEAN DEFAULT false NOT NULL,
    gauges TEXT,
    PRIMARY KEY (host_id)
);

CREATE TABLE forge_queues (
    name TEXT NOT NULL,
    max_workers INTEGER NOT NULL,
    cooldown TEXT NOT NULL,
    retention TEXT NOT NULL,
    retry TEXT NOT NULL,
    overridden TEXT DEFAULT '[]' NOT NULL,
    paused BOOLEAN DEFAULT false NOT NULL,
    paused_at BIGINT,
    cooldown_until BIGINT,
    cooldown_level INTEGER DEFAULT '0' NOT NULL,
    allocation_version BIGINT DEFAULT '0' NOT NULL,
    PRIMARY KEY (name)
);

CREATE TABLE forge_rate_limits (
    scope TEXT NOT NULL,
    capacity BIGINT NOT NULL,
    period_us BIGINT NOT NULL,
    level BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    last_turn_at BIGINT DEFAULT '0' NOT NULL,
    overridden BOOLEAN DEFAULT false NOT NULL,
    PRIMARY KEY (scope)
);

CREATE TABLE forge_schedules (
    name TEXT NOT NULL,
    spec TEXT NOT NULL,
    version BIGINT DEFAULT '1' NOT NULL,
    paused BOOLEAN DEFAULT false NOT NULL,
    edited BOOLEAN DEFAULT false NOT NULL,
    deleted BOOLEAN DEFAULT false NOT NULL,
    next_at BIGINT,
    last_fired_at BIGINT,
    fired BIGINT DEFAULT '0' NOT NULL,
    skipped BIGINT DEFAULT '0' NOT NULL,
    error TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (name)
);

CREATE INDEX forge_schedules_due ON forge_schedules (next_at);

CREATE TABLE forge_signals (
    topic TEXT NOT NULL,
    seq BIGINT NOT NULL,
    PRIMARY KEY (topic)
);

CREATE TABLE forge_slots (
    queue TEXT NOT NULL,
    host_id TEXT NOT NULL,
    epoch TEXT NOT NULL,
    target INTEGER DEFAULT '0' NOT NULL,
    granted INTEGER DEFAULT '0' NOT NULL,
    PRIMARY KEY (queue, host_id)
);

CREATE INDEX forge_slots_by_pod ON forge_slots (host_id);
