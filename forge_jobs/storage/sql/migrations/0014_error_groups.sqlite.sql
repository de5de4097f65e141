-- works-from: 1
-- Failures in groups, and the group of the newest failure of each job.

ALTER TABLE forge_jobs ADD COLUMN error_group TEXT;

CREATE INDEX forge_jobs_by_error ON forge_jobs (error_group, id) WHERE error_group IS NOT NULL;

CREATE TABLE forge_error_groups (
    queue TEXT NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    type TEXT NOT NULL,
    message TEXT NOT NULL,
    first_at BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    versions TEXT NOT NULL,
    jobs TEXT NOT NULL,
    PRIMARY KEY (queue, id)
);

CREATE INDEX forge_error_groups_by_time ON forge_error_groups (last_at, queue, id);

CREATE TABLE forge_error_hours (
    id TEXT NOT NULL,
    queue TEXT NOT NULL,
    hour BIGINT NOT NULL,
    counts TEXT NOT NULL,
    PRIMARY KEY (id, queue, hour)
);

CREATE INDEX forge_error_hours_by_hour ON forge_error_hours (hour);
