-- works-from: 1
-- Requests of operators to pods, and pods that take no new work by request.

ALTER TABLE forge_pods ADD COLUMN quiet BOOLEAN DEFAULT false NOT NULL;

CREATE TABLE forge_pod_requests (
    id TEXT NOT NULL,
    host_id TEXT NOT NULL,
    epoch TEXT NOT NULL,
    verb TEXT NOT NULL,
    asked_by TEXT NOT NULL,
    asked_at BIGINT NOT NULL,
    until BIGINT NOT NULL,
    heard_at BIGINT,
    answered_at BIGINT,
    done BOOLEAN DEFAULT false NOT NULL,
    answer TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (id)
);

CREATE INDEX forge_pod_requests_by_pod ON forge_pod_requests (host_id);
