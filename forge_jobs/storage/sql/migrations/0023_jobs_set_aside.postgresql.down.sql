DROP INDEX forge_jobs_set_aside;
