-- loses: SELECT 'groups of failures' FROM forge_error_groups LIMIT 1
DROP TABLE forge_error_hours;

DROP TABLE forge_error_groups;

DROP INDEX forge_jobs_by_error;

ALTER TABLE forge_jobs DROP COLUMN error_group;
