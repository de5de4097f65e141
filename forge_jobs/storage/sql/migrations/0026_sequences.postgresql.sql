-- works-from: 1
-- The last job of each sequence.

CREATE TABLE forge_sequences (
    line TEXT COLLATE "C" NOT NULL,
    job_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (line)
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX forge_sequences_by_job ON forge_sequences (job_id);

COMMENT ON TABLE forge_sequences IS 'The last job of each sequence, as long as that job is stored';

COMMENT ON COLUMN forge_sequences.line IS 'The queue and the key, with a line break between';

COMMENT ON COLUMN forge_sequences.job_id IS 'The job that was stored last';

COMMENT ON COLUMN forge_edges.on_failure IS 'What a dead or cancelled parent means for the child: cancel, continue, hold or note, and in a sequence wait, skip or stop';
