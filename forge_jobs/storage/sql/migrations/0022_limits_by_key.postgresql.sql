-- works-from: 1
-- Limits: how many jobs of a key may run.

ALTER TABLE forge_jobs ADD COLUMN IF NOT EXISTS limit_name TEXT COLLATE "C";

ALTER TABLE forge_jobs ADD COLUMN IF NOT EXISTS limit_key TEXT COLLATE "C" DEFAULT '' NOT NULL;

CREATE TABLE IF NOT EXISTS forge_limits (
    queue TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    at_most BIGINT NOT NULL,
    overridden BOOLEAN DEFAULT false NOT NULL,
    PRIMARY KEY (queue, name)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE IF NOT EXISTS forge_openings (
    id BIGSERIAL NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    limit_name TEXT COLLATE "C" NOT NULL,
    limit_key TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (id)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX IF NOT EXISTS forge_openings_by_queue ON forge_openings (queue, id);

COMMENT ON COLUMN forge_jobs.limit_name IS 'Limit that the job counts toward while in progress; NULL for none';

COMMENT ON COLUMN forge_jobs.limit_key IS 'Key of the limit';

COMMENT ON TABLE forge_limits IS 'How many jobs of each key of a limit may be in progress.';

COMMENT ON COLUMN forge_limits.queue IS 'Name of the queue';

COMMENT ON COLUMN forge_limits.name IS 'Name of the limit';

COMMENT ON COLUMN forge_limits.at_most IS 'Jobs of one key';

COMMENT ON COLUMN forge_limits.overridden IS 'True once an operator has set the number';

COMMENT ON TABLE forge_openings IS 'Keys of limits that may have room for jobs on hold, for the next claim.';

COMMENT ON COLUMN forge_openings.id IS 'Number of the row';

COMMENT ON COLUMN forge_openings.queue IS 'Name of the queue';

COMMENT ON COLUMN forge_openings.limit_name IS 'Name of the limit';

COMMENT ON COLUMN forge_openings.limit_key IS 'Key of the limit';

CREATE INDEX CONCURRENTLY forge_jobs_permits ON forge_jobs (queue, limit_name, limit_key) WHERE status = 'in_progress' AND limit_name IS NOT NULL;

CREATE INDEX CONCURRENTLY forge_jobs_parked ON forge_jobs (queue, limit_name, limit_key, priority, run_at, id) WHERE hold = 'limit';
