-- works-from: 1
-- Jobs that are kept aside until a pod knows their kind or reads them. Those of limits are not among them.

CREATE INDEX forge_jobs_set_aside ON forge_jobs (queue, kind) WHERE hold IN ('unknown_kind', 'unreadable');
