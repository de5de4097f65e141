-- works-from: 1
-- Strikes: rules by which operators keep jobs from running.

CREATE TABLE forge_strikes (
    name TEXT COLLATE "C" NOT NULL,
    rule TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (name)
);

COMMENT ON TABLE forge_strikes IS 'Rules by which operators keep jobs from running';

COMMENT ON COLUMN forge_strikes.name IS 'Name of the strike';

COMMENT ON COLUMN forge_strikes.rule IS 'JSON: kind, where, effect, reason, by';

COMMENT ON COLUMN forge_strikes.at IS 'When the strike was set, in microseconds since 1970-01-01 UTC';
