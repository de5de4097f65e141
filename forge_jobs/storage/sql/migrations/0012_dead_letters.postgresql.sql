-- works-from: 1
-- Letters of jobs that die, for the queue that their queue names.

ALTER TABLE forge_queues ADD COLUMN IF NOT EXISTS dead_letter TEXT COLLATE "C" DEFAULT '' NOT NULL;

CREATE TABLE forge_letters (
    id BIGSERIAL NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    origin_queue TEXT COLLATE "C" NOT NULL,
    origin_id TEXT COLLATE "C" NOT NULL,
    token BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    payload TEXT COLLATE "C" NOT NULL,
    cause TEXT COLLATE "C" NOT NULL,
    attempt INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    tags TEXT COLLATE "C" NOT NULL,
    metadata TEXT COLLATE "C" NOT NULL,
    trace TEXT COLLATE "C" NOT NULL,
    schedule TEXT COLLATE "C" NOT NULL,
    errors TEXT COLLATE "C" NOT NULL,
    enqueued_at BIGINT NOT NULL,
    died_at BIGINT NOT NULL,
    PRIMARY KEY (id)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

COMMENT ON COLUMN forge_queues.dead_letter IS 'Name of the queue for letters of jobs that die, empty for none';

COMMENT ON TABLE forge_letters IS 'Letters of jobs that died, until they are jobs of another queue.';

COMMENT ON COLUMN forge_letters.id IS 'Number of the letter';

COMMENT ON COLUMN forge_letters.queue IS 'Name of the queue that the letter is for';

COMMENT ON COLUMN forge_letters.origin_queue IS 'Name of the queue in which the job died';

COMMENT ON COLUMN forge_letters.origin_id IS 'Id of the dead job';

COMMENT ON COLUMN forge_letters.token IS 'Token of the claim that ended so';

COMMENT ON COLUMN forge_letters.kind IS 'Kind of the dead job';

COMMENT ON COLUMN forge_letters.payload IS 'Payload of the dead job';

COMMENT ON COLUMN forge_letters.cause IS 'Why the job is dead';

COMMENT ON COLUMN forge_letters.attempt IS 'Runs that counted';

COMMENT ON COLUMN forge_letters.priority IS 'Priority of the dead job';

COMMENT ON COLUMN forge_letters.tags IS 'JSON list of the tags of the dead job';

COMMENT ON COLUMN forge_letters.metadata IS 'JSON object of the metadata of the dead job';

COMMENT ON COLUMN forge_letters.trace IS 'JSON of the trace context headers, empty for none';

COMMENT ON COLUMN forge_letters.schedule IS 'Name of the schedule that fired the job, empty for none';

COMMENT ON COLUMN forge_letters.errors IS 'JSON list of the errors of the dead job, oldest first';

COMMENT ON COLUMN forge_letters.enqueued_at IS 'In microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_letters.died_at IS 'In microseconds since 1970-01-01 UTC';
