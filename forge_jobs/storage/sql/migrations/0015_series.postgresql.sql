-- works-from: 1
-- Series of kinds, queues and the whole store, by minute and by hour.

CREATE TABLE forge_series_minutes (
    queue TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    counts TEXT COLLATE "C" NOT NULL,
    delay TEXT COLLATE "C" NOT NULL,
    processing TEXT COLLATE "C" NOT NULL,
    total TEXT COLLATE "C" NOT NULL,
    depth TEXT COLLATE "C",
    PRIMARY KEY (queue, kind, at)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX forge_series_minutes_by_time ON forge_series_minutes (at, queue);

CREATE TABLE forge_series_hours (
    queue TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    counts TEXT COLLATE "C" NOT NULL,
    delay TEXT COLLATE "C" NOT NULL,
    processing TEXT COLLATE "C" NOT NULL,
    total TEXT COLLATE "C" NOT NULL,
    depth TEXT COLLATE "C",
    PRIMARY KEY (queue, kind, at)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX forge_series_hours_by_time ON forge_series_hours (at, queue);

COMMENT ON TABLE forge_series_minutes IS 'What flowed and what waited, minute by minute.';

COMMENT ON COLUMN forge_series_minutes.queue IS 'Name of the queue, empty for the whole store';

COMMENT ON COLUMN forge_series_minutes.kind IS 'Kind of the jobs, empty for all together';

COMMENT ON COLUMN forge_series_minutes.at IS 'Begin of the minute, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_series_minutes.counts IS 'JSON object of counters by name';

COMMENT ON COLUMN forge_series_minutes.delay IS 'JSON object, bucket to count: from due to the start';

COMMENT ON COLUMN forge_series_minutes.processing IS 'JSON object, bucket to count: from the start to the end';

COMMENT ON COLUMN forge_series_minutes.total IS 'JSON object, bucket to count: from due to the end';

COMMENT ON COLUMN forge_series_minutes.depth IS 'JSON list: due, age of the oldest in microseconds or -1, granted, running, most workers; the greatest of each';

COMMENT ON TABLE forge_series_hours IS 'What flowed and what waited, hour by hour.';

COMMENT ON COLUMN forge_series_hours.queue IS 'Name of the queue, empty for the whole store';

COMMENT ON COLUMN forge_series_hours.kind IS 'Kind of the jobs, empty for all together';

COMMENT ON COLUMN forge_series_hours.at IS 'Begin of the hour, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_series_hours.counts IS 'JSON object of counters by name';

COMMENT ON COLUMN forge_series_hours.delay IS 'JSON object, bucket to count: from due to the start';

COMMENT ON COLUMN forge_series_hours.processing IS 'JSON object, bucket to count: from the start to the end';

COMMENT ON COLUMN forge_series_hours.total IS 'JSON object, bucket to count: from due to the end';

COMMENT ON COLUMN forge_series_hours.depth IS 'JSON list: due, age of the oldest in microseconds or -1, granted, running, most workers; the greatest of each';
