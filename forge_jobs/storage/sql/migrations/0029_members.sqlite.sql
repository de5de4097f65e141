-- works-from: 1
-- The stored jobs of sequences.

CREATE TABLE forge_members (
    job_id TEXT NOT NULL,
    line TEXT NOT NULL,
    on_failure TEXT NOT NULL,
    PRIMARY KEY (job_id)
);
