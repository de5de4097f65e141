-- works-from: 1
-- A run that was over before a beat of its pod is shown as started when it was claimed.

DROP VIEW forge_jobs_view;

CREATE VIEW forge_jobs_view AS
SELECT id, queue, kind, status, cause, hold, priority, attempt, max_attempts, crashes, snoozes,
    strftime('%Y-%m-%dT%H:%M:%S', enqueued_at / 1000000, 'unixepoch') || printf('.%06dZ', enqueued_at % 1000000) AS enqueued_at,
    strftime('%Y-%m-%dT%H:%M:%S', run_at / 1000000, 'unixepoch') || printf('.%06dZ', run_at % 1000000) AS due_at,
    strftime('%Y-%m-%dT%H:%M:%S', claimed_at / 1000000, 'unixepoch') || printf('.%06dZ', claimed_at % 1000000) AS claimed_at,
    strftime('%Y-%m-%dT%H:%M:%S', (CASE WHEN status IN ('done', 'dead', 'failed') THEN coalesce(started_at, claimed_at) ELSE started_at END) / 1000000, 'unixepoch')
        || printf('.%06dZ', (CASE WHEN status IN ('done', 'dead', 'failed') THEN coalesce(started_at, claimed_at) ELSE started_at END) % 1000000) AS started_at,
    strftime('%Y-%m-%dT%H:%M:%S', heartbeat_at / 1000000, 'unixepoch') || printf('.%06dZ', heartbeat_at % 1000000) AS heartbeat_at,
    strftime('%Y-%m-%dT%H:%M:%S', finished_at / 1000000, 'unixepoch') || printf('.%06dZ', finished_at % 1000000) AS finished_at,
    strftime('%Y-%m-%dT%H:%M:%S', expires_at / 1000000, 'unixepoch') || printf('.%06dZ', expires_at % 1000000) AS expires_at,
    timeout_us / 1000000.0 AS timeout,
    max(0, coalesce(started_at, claimed_at) - run_at) / 1000000.0 AS waited,
    (CASE status WHEN 'in_progress' THEN heartbeat_at ELSE finished_at END - coalesce(started_at, claimed_at))
        / 1000000.0 AS ran,
    host_id, worker_id, unique_key, schedule, tags, metadata, payload, result, errors
FROM forge_jobs;
