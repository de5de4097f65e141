-- works-from: 1
-- Checkpoints of jobs, and steps taken in transactions of handlers.

CREATE TABLE forge_steps (
    job_id TEXT NOT NULL,
    step TEXT NOT NULL,
    token BIGINT NOT NULL,
    at BIGINT NOT NULL,
    value TEXT,
    PRIMARY KEY (job_id, step)
);
