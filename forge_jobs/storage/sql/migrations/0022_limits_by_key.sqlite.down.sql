-- loses: SELECT 'limits that were set by hand' FROM forge_limits WHERE overridden LIMIT 1
UPDATE forge_jobs SET hold = NULL WHERE hold = 'limit';

DROP TABLE forge_openings;

DROP TABLE forge_limits;

DROP INDEX forge_jobs_parked;

DROP INDEX forge_jobs_permits;

ALTER TABLE forge_jobs DROP COLUMN limit_key;

ALTER TABLE forge_jobs DROP COLUMN limit_name;
