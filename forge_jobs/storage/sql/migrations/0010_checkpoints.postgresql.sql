-- works-from: 1
-- Checkpoints of jobs, and steps taken in transactions of handlers.

CREATE TABLE forge_steps (
    job_id TEXT COLLATE "C" NOT NULL,
    step TEXT COLLATE "C" NOT NULL,
    token BIGINT NOT NULL,
    at BIGINT NOT NULL,
    value TEXT COLLATE "C",
    PRIMARY KEY (job_id, step)
);

COMMENT ON TABLE forge_steps IS 'Checkpoints of jobs, and steps that handlers have taken in transactions of the program.';

COMMENT ON COLUMN forge_steps.job_id IS 'Id of the job';

COMMENT ON COLUMN forge_steps.step IS 'Name that the handler gave the step; empty for the checkpoint';

COMMENT ON COLUMN forge_steps.token IS 'Token of the claim under which the step was taken';

COMMENT ON COLUMN forge_steps.at IS 'In microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_steps.value IS 'JSON of the checkpoint; NULL for a step';
