-- works-from: 1
-- Failures in groups, and the group of the newest failure of each job.

ALTER TABLE forge_jobs ADD COLUMN IF NOT EXISTS error_group TEXT COLLATE "C";

CREATE TABLE IF NOT EXISTS forge_error_groups (
    queue TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    type TEXT COLLATE "C" NOT NULL,
    message TEXT COLLATE "C" NOT NULL,
    first_at BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    versions TEXT COLLATE "C" NOT NULL,
    jobs TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (queue, id)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX IF NOT EXISTS forge_error_groups_by_time ON forge_error_groups (last_at, queue, id);

CREATE TABLE IF NOT EXISTS forge_error_hours (
    id TEXT COLLATE "C" NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    hour BIGINT NOT NULL,
    counts TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (id, queue, hour)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX IF NOT EXISTS forge_error_hours_by_hour ON forge_error_hours (hour);

COMMENT ON COLUMN forge_jobs.error_group IS 'Id of the group of the newest failure; NULL before one';

COMMENT ON TABLE forge_error_groups IS 'Groups of failures that are alike, per queue.';

COMMENT ON COLUMN forge_error_groups.queue IS 'Name of the queue';

COMMENT ON COLUMN forge_error_groups.id IS 'Fingerprint of kind, type and message; other for what has no group of its own';

COMMENT ON COLUMN forge_error_groups.kind IS 'Kind of the jobs';

COMMENT ON COLUMN forge_error_groups.type IS 'Type of the error';

COMMENT ON COLUMN forge_error_groups.message IS 'Message without its changing parts';

COMMENT ON COLUMN forge_error_groups.first_at IS 'First failure that is known, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_error_groups.last_at IS 'Last failure that is known, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_error_groups.versions IS 'JSON list of the versions of pods that met such failures, oldest first';

COMMENT ON COLUMN forge_error_groups.jobs IS 'JSON list of some of the jobs, newest first';

COMMENT ON TABLE forge_error_hours IS 'How often a group of failures came, hour by hour.';

COMMENT ON COLUMN forge_error_hours.id IS 'Id of the group';

COMMENT ON COLUMN forge_error_hours.queue IS 'Name of the queue';

COMMENT ON COLUMN forge_error_hours.hour IS 'Begin of the hour, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_error_hours.counts IS 'JSON object: minute of the hour, then how many failures were retried and how many left a dead job';

CREATE INDEX CONCURRENTLY forge_jobs_by_error ON forge_jobs (error_group, id) WHERE error_group IS NOT NULL;
