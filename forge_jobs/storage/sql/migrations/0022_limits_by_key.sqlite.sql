-- works-from: 1
-- Limits: how many jobs of a key may run.

ALTER TABLE forge_jobs ADD COLUMN limit_name TEXT;

ALTER TABLE forge_jobs ADD COLUMN limit_key TEXT DEFAULT '' NOT NULL;

CREATE INDEX forge_jobs_permits ON forge_jobs (queue, limit_name, limit_key) WHERE status = 'in_progress' AND limit_name IS NOT NULL;

CREATE INDEX forge_jobs_parked ON forge_jobs (queue, limit_name, limit_key, priority, run_at, id) WHERE hold = 'limit';

CREATE TABLE forge_limits (
    queue TEXT NOT NULL,
    name TEXT NOT NULL,
    at_most BIGINT NOT NULL,
    overridden BOOLEAN DEFAULT false NOT NULL,
    PRIMARY KEY (queue, name)
);

CREATE TABLE forge_openings (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL,
    limit_name TEXT NOT NULL,
    limit_key TEXT NOT NULL
);

CREATE INDEX forge_openings_by_queue ON forge_openings (queue, id);
