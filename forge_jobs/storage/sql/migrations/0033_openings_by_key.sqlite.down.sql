CREATE INDEX forge_jobs_held ON forge_jobs (queue, kind) WHERE hold IS NOT NULL;
