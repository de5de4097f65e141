UPDATE forge_jobs SET hold = NULL WHERE hold = 'struck';

DROP INDEX forge_jobs_struck;
