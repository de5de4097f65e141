-- works-from: 1
-- What is known of unique keys beside the jobs that hold them.

CREATE TABLE forge_unique_windows (
    queue TEXT COLLATE "C" NOT NULL,
    unique_key TEXT COLLATE "C" NOT NULL,
    job_id TEXT COLLATE "C" NOT NULL,
    opened_at BIGINT NOT NULL,
    ends_at BIGINT NOT NULL,
    PRIMARY KEY (queue, unique_key)
);

CREATE INDEX forge_unique_windows_by_end ON forge_unique_windows (ends_at);

CREATE TABLE forge_replacements (
    request_id TEXT COLLATE "C" NOT NULL,
    job_id TEXT COLLATE "C" NOT NULL,
    ends_at BIGINT NOT NULL,
    PRIMARY KEY (request_id)
);

CREATE INDEX forge_replacements_by_end ON forge_replacements (ends_at);

COMMENT ON TABLE forge_unique_windows IS 'Keys for which requests in mode cooldown are dropped, also when the job has ended.';

COMMENT ON TABLE forge_replacements IS 'Requests whose content another job has taken, for repeats of the request.';

COMMENT ON COLUMN forge_unique_windows.queue IS 'Name of the queue';

COMMENT ON COLUMN forge_unique_windows.unique_key IS 'The key';

COMMENT ON COLUMN forge_unique_windows.job_id IS 'The job that opened the window';

COMMENT ON COLUMN forge_unique_windows.opened_at IS 'In microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_unique_windows.ends_at IS 'In microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_replacements.request_id IS 'The id of the request, under which no job was stored';

COMMENT ON COLUMN forge_replacements.job_id IS 'The job that has the content of the request';

COMMENT ON COLUMN forge_replacements.ends_at IS 'When this is forgotten, in microseconds since 1970-01-01 UTC';
