-- works-from: 1
-- Jobs that were written down in a transaction of their caller, for a queue on another store.

CREATE TABLE forge_outbox (
    id BIGSERIAL NOT NULL,
    destination TEXT COLLATE "C" NOT NULL,
    job_id TEXT COLLATE "C" NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    job TEXT COLLATE "C" NOT NULL,
    problem TEXT COLLATE "C" DEFAULT '' NOT NULL,
    written_at BIGINT NOT NULL,
    PRIMARY KEY (id)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

COMMENT ON TABLE forge_outbox IS 'Jobs for queues on other stores, until they are stored there.';

COMMENT ON COLUMN forge_outbox.id IS 'Number of the record';

COMMENT ON COLUMN forge_outbox.destination IS 'Name of the store that the job is for';

COMMENT ON COLUMN forge_outbox.job_id IS 'Id of the job';

COMMENT ON COLUMN forge_outbox.queue IS 'Name of the queue of the job';

COMMENT ON COLUMN forge_outbox.kind IS 'Kind of the job';

COMMENT ON COLUMN forge_outbox.job IS 'JSON of the job';

COMMENT ON COLUMN forge_outbox.problem IS 'Why the destination refuses the job, empty while the job waits';

COMMENT ON COLUMN forge_outbox.written_at IS 'In microseconds since 1970-01-01 UTC';
