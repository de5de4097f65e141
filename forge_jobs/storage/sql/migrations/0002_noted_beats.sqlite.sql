-- works-from: 1

CREATE TABLE forge_noted_beats (
    job_id TEXT NOT NULL,
    token BIGINT NOT NULL,
    beat_at BIGINT NOT NULL,
    PRIMARY KEY (job_id)
);
