-- works-from: 1
-- Jobs that strikes hold, by strike and in the order of their queues.

CREATE INDEX forge_jobs_struck ON forge_jobs (rate_limit, queue, priority, run_at, id) WHERE hold = 'struck';
