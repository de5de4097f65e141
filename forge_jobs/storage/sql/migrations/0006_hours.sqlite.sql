-- works-from: 1
-- Minutes that are past their time are kept as hours.

CREATE TABLE forge_hours (
    queue TEXT NOT NULL,
    hour BIGINT NOT NULL,
    counts TEXT NOT NULL,
    processing TEXT NOT NULL,
    total TEXT NOT NULL,
    PRIMARY KEY (queue, hour)
);

CREATE INDEX forge_hours_by_hour ON forge_hours (hour);

CREATE TABLE forge_pod_hours (
    hour BIGINT NOT NULL,
    host_id TEXT NOT NULL,
    gauges TEXT NOT NULL,
    PRIMARY KEY (hour, host_id)
);
