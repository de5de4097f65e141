-- works-from: 1
-- Buckets of the keys of rate limits.

CREATE TABLE forge_rate_keys (
    scope TEXT NOT NULL,
    "key" TEXT NOT NULL,
    capacity BIGINT NOT NULL,
    period_us BIGINT NOT NULL,
    level BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    last_turn_at BIGINT NOT NULL,
    ends_at BIGINT NOT NULL,
    PRIMARY KEY (scope, "key")
);

CREATE INDEX forge_rate_keys_by_end ON forge_rate_keys (ends_at);
