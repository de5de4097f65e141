DROP VIEW forge_jobs_view;
