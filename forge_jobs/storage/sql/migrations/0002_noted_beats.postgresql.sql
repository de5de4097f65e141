-- works-from: 1

CREATE TABLE forge_noted_beats (
    job_id TEXT COLLATE "C" NOT NULL,
    token BIGINT NOT NULL,
    beat_at BIGINT NOT NULL,
    PRIMARY KEY (job_id)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
