-- works-from: 1
-- Requests of operators to pods, and pods that take no new work by request.

ALTER TABLE forge_pods ADD COLUMN IF NOT EXISTS quiet BOOLEAN DEFAULT false NOT NULL;

CREATE TABLE forge_pod_requests (
    id TEXT COLLATE "C" NOT NULL,
    host_id TEXT COLLATE "C" NOT NULL,
    epoch TEXT COLLATE "C" NOT NULL,
    verb TEXT COLLATE "C" NOT NULL,
    asked_by TEXT COLLATE "C" NOT NULL,
    asked_at BIGINT NOT NULL,
    until BIGINT NOT NULL,
    heard_at BIGINT,
    answered_at BIGINT,
    done BOOLEAN DEFAULT false NOT NULL,
    answer TEXT COLLATE "C" DEFAULT '' NOT NULL,
    PRIMARY KEY (id)
);

CREATE INDEX forge_pod_requests_by_pod ON forge_pod_requests (host_id);

COMMENT ON COLUMN forge_pods.quiet IS 'True while the pod takes no further job by request and does not stop';

COMMENT ON TABLE forge_pod_requests IS 'Requests of operators to pods, for an hour.';

COMMENT ON COLUMN forge_pod_requests.id IS 'Id of the request';

COMMENT ON COLUMN forge_pod_requests.host_id IS 'Id of the pod';

COMMENT ON COLUMN forge_pod_requests.epoch IS 'Registration of the pod that was asked';

COMMENT ON COLUMN forge_pod_requests.verb IS 'quiet, resume, stop or stacks';

COMMENT ON COLUMN forge_pod_requests.asked_by IS 'Name of the person or program';

COMMENT ON COLUMN forge_pod_requests.asked_at IS 'In microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_pod_requests.until IS 'No pod hears of the request from then on, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_pod_requests.heard_at IS 'When the pod first took the request, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_pod_requests.answered_at IS 'In microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_pod_requests.done IS 'True when the pod did what was asked';

COMMENT ON COLUMN forge_pod_requests.answer IS 'Text for people, empty before the answer';
