-- works-from: 1
-- Strikes: rules by which operators keep jobs from running.

CREATE TABLE forge_strikes (
    name TEXT NOT NULL,
    rule TEXT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (name)
);
