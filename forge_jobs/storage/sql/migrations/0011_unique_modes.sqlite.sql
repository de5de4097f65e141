-- works-from: 1
-- What is known of unique keys beside the jobs that hold them.

CREATE TABLE forge_unique_windows (
    queue TEXT NOT NULL,
    unique_key TEXT NOT NULL,
    job_id TEXT NOT NULL,
    opened_at BIGINT NOT NULL,
    ends_at BIGINT NOT NULL,
    PRIMARY KEY (queue, unique_key)
);

CREATE INDEX forge_unique_windows_by_end ON forge_unique_windows (ends_at);

CREATE TABLE forge_replacements (
    request_id TEXT NOT NULL,
    job_id TEXT NOT NULL,
    ends_at BIGINT NOT NULL,
    PRIMARY KEY (request_id)
);

CREATE INDEX forge_replacements_by_end ON forge_replacements (ends_at);
