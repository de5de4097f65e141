-- works-from: 1
-- Keys of limits take turns. Claims within limits are a function of PostgreSQL alone.

ALTER TABLE forge_limits ADD COLUMN share BIGINT;

ALTER TABLE forge_openings ADD COLUMN since BIGINT DEFAULT '0' NOT NULL;
