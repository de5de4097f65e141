-- works-from: 1
-- Buckets of the keys of rate limits.

CREATE TABLE forge_rate_keys (
    scope TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    capacity BIGINT NOT NULL,
    period_us BIGINT NOT NULL,
    level BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    last_turn_at BIGINT NOT NULL,
    ends_at BIGINT NOT NULL,
    PRIMARY KEY (scope, key)
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX forge_rate_keys_by_end ON forge_rate_keys (ends_at);

COMMENT ON TABLE forge_rate_keys IS 'Token buckets of the keys of a rate limit. A bucket without a row is full.';

COMMENT ON COLUMN forge_rate_keys.scope IS 'Name of the limit';

COMMENT ON COLUMN forge_rate_keys.key IS 'The key';

COMMENT ON COLUMN forge_rate_keys.capacity IS 'Tokens of a full bucket when the level was written';

COMMENT ON COLUMN forge_rate_keys.period_us IS 'Microseconds in which an empty bucket filled when the level was written';

COMMENT ON COLUMN forge_rate_keys.level IS 'What is taken of the bucket at updated_at, in 1/period_us of a token';

COMMENT ON COLUMN forge_rate_keys.updated_at IS 'In microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_rate_keys.last_turn_at IS 'The last turn given to a job that waits for tokens, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_rate_keys.ends_at IS 'When the bucket is full and the last turn is over, in microseconds since 1970-01-01 UTC';
