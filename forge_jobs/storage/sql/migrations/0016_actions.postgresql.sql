-- works-from: 1
-- Records of operators' actions, and how far each has come.

CREATE TABLE forge_actions (
    id TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    document TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (id)
);

CREATE TABLE forge_action_parts (
    action_id TEXT COLLATE "C" NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    cursor TEXT COLLATE "C" NOT NULL,
    changed BIGINT NOT NULL,
    requested BIGINT NOT NULL,
    refused TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (action_id, queue)
);

CREATE TABLE forge_action_jobs (
    action_id TEXT COLLATE "C" NOT NULL,
    job_id TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (action_id, job_id)
);

CREATE INDEX forge_action_jobs_by_time ON forge_action_jobs (at);

COMMENT ON TABLE forge_actions IS 'Records of operators'' actions.';

COMMENT ON COLUMN forge_actions.id IS 'Id of the action, a ULID';

COMMENT ON COLUMN forge_actions.at IS 'In microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_actions.document IS 'JSON of the record';

COMMENT ON TABLE forge_action_parts IS 'How far an action on many jobs has come, per queue.';

COMMENT ON COLUMN forge_action_parts.action_id IS 'Id of the action';

COMMENT ON COLUMN forge_action_parts.queue IS 'Name of the queue';

COMMENT ON COLUMN forge_action_parts.state IS 'running, done or aborted';

COMMENT ON COLUMN forge_action_parts.cursor IS 'Id of the last job visited, empty before the first';

COMMENT ON COLUMN forge_action_parts.changed IS 'Number of jobs changed';

COMMENT ON COLUMN forge_action_parts.requested IS 'Number of running jobs whose owner was asked to stop';

COMMENT ON COLUMN forge_action_parts.refused IS 'JSON object: reason and number of jobs left as they were';

COMMENT ON TABLE forge_action_jobs IS 'Jobs that an action has changed, for seven days.';

COMMENT ON COLUMN forge_action_jobs.action_id IS 'Id of the action';

COMMENT ON COLUMN forge_action_jobs.job_id IS 'Id of the job';

COMMENT ON COLUMN forge_action_jobs.at IS 'In microseconds since 1970-01-01 UTC';
