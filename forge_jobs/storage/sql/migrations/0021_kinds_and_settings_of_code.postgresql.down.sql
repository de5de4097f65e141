ALTER TABLE forge_queues DROP COLUMN declared;

DROP TABLE forge_kinds;
