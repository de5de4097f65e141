-- works-from: 1
-- Objectives of queues.

ALTER TABLE forge_queues ADD COLUMN IF NOT EXISTS objective TEXT COLLATE "C" DEFAULT '' NOT NULL;

COMMENT ON COLUMN forge_queues.objective IS 'Share of jobs that should start in time, as 95% within 30s, empty for none';
