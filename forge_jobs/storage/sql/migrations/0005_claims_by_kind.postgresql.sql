-- works-from: 1
-- For claims that meet jobs of kinds that are not theirs.

CREATE INDEX CONCURRENTLY forge_jobs_ready_by_kind ON forge_jobs (queue, kind, priority, run_at, id) WHERE status IN ('pending', 'failed') AND hold IS NULL;
