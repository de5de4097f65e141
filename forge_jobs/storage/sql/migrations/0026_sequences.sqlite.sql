-- works-from: 1
-- The last job of each sequence.

CREATE TABLE forge_sequences (
    line TEXT NOT NULL,
    job_id TEXT NOT NULL,
    PRIMARY KEY (line)
);

CREATE INDEX forge_sequences_by_job ON forge_sequences (job_id);
