-- works-from: 1
-- Jobs on hold are in one index less: the last programs that asked for them by kind were of a release before limits.

DROP INDEX forge_jobs_held;
