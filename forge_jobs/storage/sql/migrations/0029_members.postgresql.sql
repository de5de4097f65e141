-- works-from: 1
-- The stored jobs of sequences.

CREATE TABLE forge_members (
    job_id TEXT COLLATE "C" NOT NULL,
    line TEXT COLLATE "C" NOT NULL,
    on_failure TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (job_id)
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);

COMMENT ON TABLE forge_members IS 'The stored jobs of sequences, by which those that wait again find their sequence';

COMMENT ON COLUMN forge_members.job_id IS 'The job';

COMMENT ON COLUMN forge_members.line IS 'The queue and the key, with a line break between';

COMMENT ON COLUMN forge_members.on_failure IS 'What the job does after a dead or cancelled one: wait, skip or stop';
