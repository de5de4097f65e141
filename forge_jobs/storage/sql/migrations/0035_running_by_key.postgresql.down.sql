ALTER INDEX forge_jobs_permits RESET (deduplicate_items);
