-- works-from: 1
-- Records of operators' actions, and how far each has come.

CREATE TABLE forge_actions (
    id TEXT NOT NULL,
    at BIGINT NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (id)
);

CREATE TABLE forge_action_parts (
    action_id TEXT NOT NULL,
    queue TEXT NOT NULL,
    state TEXT NOT NULL,
    cursor TEXT NOT NULL,
    changed BIGINT NOT NULL,
    requested BIGINT NOT NULL,
    refused TEXT NOT NULL,
    PRIMARY KEY (action_id, queue)
);

CREATE TABLE forge_action_jobs (
    action_id TEXT NOT NULL,
    job_id TEXT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (action_id, job_id)
);

CREATE INDEX forge_action_jobs_by_time ON forge_action_jobs (at);
