-- works-from: 1
-- Jobs that strikes hold, by strike and in the order of their queues.

COMMENT ON COLUMN forge_jobs.hold IS 'Why a waiting job is kept from running: unknown_kind, unreadable, limit or struck';

COMMENT ON COLUMN forge_jobs.rate_limit IS 'The rate limit whose tokens the job waits for, or the mark of the strike that holds it';

CREATE INDEX CONCURRENTLY forge_jobs_struck ON forge_jobs (rate_limit, queue, priority, run_at, id) WHERE hold = 'struck';
