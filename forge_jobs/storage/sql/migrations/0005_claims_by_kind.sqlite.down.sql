DROP INDEX forge_jobs_ready_by_kind;
