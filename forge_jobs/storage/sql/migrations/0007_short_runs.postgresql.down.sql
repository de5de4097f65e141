CREATE OR REPLACE VIEW forge_jobs_view AS
SELECT id, queue, kind, status, cause, hold, priority, attempt, max_attempts, crashes, snoozes,
    forge_instant(enqueued_at) AS enqueued_at,
    forge_instant(run_at) AS due_at,
    forge_instant(claimed_at) AS claimed_at,
    forge_instant(started_at) AS started_at,
    forge_instant(heartbeat_at) AS heartbeat_at,
    forge_instant(finished_at) AS finished_at,
    forge_instant(expires_at) AS expires_at,
    forge_duration(timeout_us) AS timeout,
    greatest(interval '0', forge_instant(coalesce(started_at, claimed_at)) - forge_instant(run_at)) AS waited,
    forge_instant(CASE status WHEN 'in_progress' THEN heartbeat_at ELSE finished_at END)
        - forge_instant(coalesce(started_at, claimed_at)) AS ran,
    host_id, worker_id, unique_key, schedule, tags, metadata, payload, result, errors
FROM forge_jobs;

COMMENT ON COLUMN forge_jobs.started_at IS 'When the last run is known to have started';
