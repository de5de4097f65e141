-- works-from: 1
-- Progress and log lines of running jobs.

CREATE TABLE forge_progress (
    job_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    token BIGINT NOT NULL,
    progress TEXT,
    seq BIGINT NOT NULL,
    number BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    PRIMARY KEY (job_id, attempt)
);

CREATE TABLE forge_log_lines (
    job_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    number BIGINT NOT NULL,
    token BIGINT NOT NULL,
    at BIGINT NOT NULL,
    level INTEGER NOT NULL,
    text TEXT NOT NULL,
    begins BIGINT NOT NULL,
    PRIMARY KEY (job_id, attempt, number)
);
