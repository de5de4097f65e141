-- works-from: 1
-- Series of kinds, queues and the whole store, by minute and by hour.

CREATE TABLE forge_series_minutes (
    queue TEXT NOT NULL,
    kind TEXT NOT NULL,
    at BIGINT NOT NULL,
    counts TEXT NOT NULL,
    delay TEXT NOT NULL,
    processing TEXT NOT NULL,
    total TEXT NOT NULL,
    depth TEXT,
    PRIMARY KEY (queue, kind, at)
);

CREATE INDEX forge_series_minutes_by_time ON forge_series_minutes (at, queue);

CREATE TABLE forge_series_hours (
    queue TEXT NOT NULL,
    kind TEXT NOT NULL,
    at BIGINT NOT NULL,
    counts TEXT NOT NULL,
    delay TEXT NOT NULL,
    processing TEXT NOT NULL,
    total TEXT NOT NULL,
    depth TEXT,
    PRIMARY KEY (queue, kind, at)
);

CREATE INDEX forge_series_hours_by_time ON forge_series_hours (at, queue);
