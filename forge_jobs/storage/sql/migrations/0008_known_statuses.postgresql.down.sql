ALTER TABLE forge_jobs DROP CONSTRAINT forge_jobs_known_status;

ALTER TABLE forge_handovers DROP CONSTRAINT forge_handovers_known_status;

ALTER TABLE forge_queues ALTER COLUMN allocation_version SET DEFAULT '0';
