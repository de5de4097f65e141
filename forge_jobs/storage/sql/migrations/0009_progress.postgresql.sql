-- works-from: 1
-- Progress and log lines of running jobs.

CREATE TABLE forge_progress (
    job_id TEXT COLLATE "C" NOT NULL,
    attempt INTEGER NOT NULL,
    token BIGINT NOT NULL,
    progress TEXT COLLATE "C",
    seq BIGINT NOT NULL,
    number BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    PRIMARY KEY (job_id, attempt)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE forge_log_lines (
    job_id TEXT COLLATE "C" NOT NULL,
    attempt INTEGER NOT NULL,
    number BIGINT NOT NULL,
    token BIGINT NOT NULL,
    at BIGINT NOT NULL,
    level INTEGER NOT NULL,
    text TEXT COLLATE "C" NOT NULL,
    begins BIGINT NOT NULL,
    PRIMARY KEY (job_id, attempt, number)
);

COMMENT ON TABLE forge_progress IS 'What the runs of each attempt have told: progress, and where the log ends.';

COMMENT ON COLUMN forge_progress.job_id IS 'Id of the job';

COMMENT ON COLUMN forge_progress.attempt IS 'Number of the attempt, from 1';

COMMENT ON COLUMN forge_progress.token IS 'Token of the claim of the last run that has told something';

COMMENT ON COLUMN forge_progress.progress IS 'JSON of the progress; NULL: the run has set none';

COMMENT ON COLUMN forge_progress.seq IS 'Count of the last line in its run';

COMMENT ON COLUMN forge_progress.number IS 'Number of the last line in the attempt';

COMMENT ON COLUMN forge_progress.bytes IS 'Bytes of all lines of the attempt, also of those dropped';

COMMENT ON TABLE forge_log_lines IS 'Lines that handlers have logged with ctx.log: of each attempt the newest.';

COMMENT ON COLUMN forge_log_lines.job_id IS 'Id of the job';

COMMENT ON COLUMN forge_log_lines.attempt IS 'Number of the attempt, from 1';

COMMENT ON COLUMN forge_log_lines.number IS 'Number of the line in the attempt, from 1; lines that were dropped leave gaps';

COMMENT ON COLUMN forge_log_lines.token IS 'Token of the claim under which the run wrote the line';

COMMENT ON COLUMN forge_log_lines.at IS 'In microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_log_lines.level IS 'As in the logging module: 20 is INFO';

COMMENT ON COLUMN forge_log_lines.text IS 'What was logged';

COMMENT ON COLUMN forge_log_lines.begins IS 'Bytes of the lines of the attempt before this one';
