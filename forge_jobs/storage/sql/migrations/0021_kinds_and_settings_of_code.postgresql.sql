-- works-from: 1
-- What pods say of their kinds, and what code declares for queues.

CREATE TABLE forge_kinds (
    kind TEXT COLLATE "C" NOT NULL,
    document TEXT COLLATE "C" NOT NULL,
    published_at BIGINT NOT NULL,
    PRIMARY KEY (kind)
);

ALTER TABLE forge_queues ADD COLUMN IF NOT EXISTS declared TEXT COLLATE "C";

COMMENT ON TABLE forge_kinds IS 'Kinds of jobs as the pods describe them.';

COMMENT ON COLUMN forge_kinds.kind IS 'Name of the kind, or another name of one';

COMMENT ON COLUMN forge_kinds.document IS 'JSON with the defaults of the kind and the JSON Schema of the payload';

COMMENT ON COLUMN forge_kinds.published_at IS 'When a pod with the kind last joined, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_queues.declared IS 'JSON of the settings that code declared last, empty (NULL) where no code did';
