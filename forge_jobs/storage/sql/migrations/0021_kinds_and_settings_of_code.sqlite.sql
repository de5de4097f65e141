-- works-from: 1
-- What pods say of their kinds, and what code declares for queues.

CREATE TABLE forge_kinds (
    kind TEXT NOT NULL,
    document TEXT NOT NULL,
    published_at BIGINT NOT NULL,
    PRIMARY KEY (kind)
);

ALTER TABLE forge_queues ADD COLUMN declared TEXT;
