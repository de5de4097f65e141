-- works-from: 1
-- Objectives of queues.

ALTER TABLE forge_queues ADD COLUMN objective TEXT DEFAULT '' NOT NULL;
