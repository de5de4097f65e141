-- works-from: 1
-- Minutes that are past their time are kept as hours.

CREATE TABLE forge_hours (
    queue TEXT COLLATE "C" NOT NULL,
    hour BIGINT NOT NULL,
    counts TEXT COLLATE "C" NOT NULL,
    processing TEXT COLLATE "C" NOT NULL,
    total TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (queue, hour)
);

CREATE INDEX forge_hours_by_hour ON forge_hours (hour);

CREATE TABLE forge_pod_hours (
    hour BIGINT NOT NULL,
    host_id TEXT COLLATE "C" NOT NULL,
    gauges TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (hour, host_id)
);

COMMENT ON TABLE forge_hours IS 'Hours of queues that are past their minutes: counts and latencies (JSON).';

COMMENT ON TABLE forge_pod_hours IS 'The last gauges (JSON) of each pod in hours that are past their minutes.';
