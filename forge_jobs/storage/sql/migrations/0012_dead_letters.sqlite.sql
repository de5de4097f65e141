-- works-from: 1
-- Letters of jobs that die, for the queue that their queue names.

ALTER TABLE forge_queues ADD COLUMN dead_letter TEXT DEFAULT '' NOT NULL;

CREATE TABLE forge_letters (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL,
    origin_queue TEXT NOT NULL,
    origin_id TEXT NOT NULL,
    token BIGINT NOT NULL,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL,
    cause TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    tags TEXT NOT NULL,
    metadata TEXT NOT NULL,
    trace TEXT NOT NULL,
    schedule TEXT NOT NULL,
    errors TEXT NOT NULL,
    enqueued_at BIGINT NOT NULL,
    died_at BIGINT NOT NULL
);
