-- works-from: 1
-- Jobs that were written down in a transaction of their caller, for a queue on another store.

CREATE TABLE forge_outbox (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    destination TEXT NOT NULL,
    job_id TEXT NOT NULL,
    queue TEXT NOT NULL,
    kind TEXT NOT NULL,
    job TEXT NOT NULL,
    problem TEXT DEFAULT '' NOT NULL,
    written_at BIGINT NOT NULL
);
