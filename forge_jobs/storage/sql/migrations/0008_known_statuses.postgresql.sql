-- works-from: 1
-- Statuses that no release knows are refused, and every table and column says what it holds.

ALTER TABLE forge_jobs DROP CONSTRAINT IF EXISTS forge_jobs_known_status;

ALTER TABLE forge_jobs ADD CONSTRAINT forge_jobs_known_status CHECK (status IN ('blocked', 'pending', 'in_progress', 'failed', 'done', 'dead', 'cancelled')) NOT VALID;

ALTER TABLE forge_handovers DROP CONSTRAINT IF EXISTS forge_handovers_known_status;

ALTER TABLE forge_handovers ADD CONSTRAINT forge_handovers_known_status CHECK (parent_status IN ('done', 'dead', 'cancelled')) NOT VALID;

-- A queue that forge_enqueue makes begins at the clock, as other queues do: one that was deleted and made anew never meets an old version.
ALTER TABLE forge_queues ALTER COLUMN allocation_version SET DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint;

COMMENT ON COLUMN forge_jobs.queue IS 'The queue that the job waits in';

COMMENT ON COLUMN forge_jobs.snoozed_at IS 'When a handler gave the job back last, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_jobs.rate_limit IS 'The rate limit whose tokens the job waits for';

COMMENT ON COLUMN forge_jobs.worker_id IS 'The worker task of the last claim';

COMMENT ON COLUMN forge_jobs.cancel_requested IS 'True once the handler is asked to stop';

COMMENT ON COLUMN forge_jobs.unique_key IS 'At most one job of the queue that has not ended holds this key';

COMMENT ON COLUMN forge_jobs.has_children IS 'True when other jobs wait for this one: forge_edges';

COMMENT ON COLUMN forge_jobs.trace IS 'JSON of the trace headers of the caller, empty for none';

COMMENT ON COLUMN forge_jobs.schedule IS 'The schedule that enqueued the job, empty when none did';

COMMENT ON COLUMN forge_jobs.keep_result IS 'Whether the result is stored';

COMMENT ON COLUMN forge_jobs.result_ttl_us IS 'How long the result is kept, in microseconds';

COMMENT ON COLUMN forge_jobs.result_expires_at IS 'When the result is removed, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_edges.child_id IS 'The job that waits';

COMMENT ON COLUMN forge_edges.parent_id IS 'The job that the child waits for';

COMMENT ON COLUMN forge_edges.child_queue IS 'The queue of the child';

COMMENT ON COLUMN forge_edges.on_failure IS 'What a dead or cancelled parent means for the child: cancel, continue or hold';

COMMENT ON COLUMN forge_edges.state IS 'What the parent means for the child now: open, held or settled';

COMMENT ON COLUMN forge_edges.link IS 'live: the next end of the parent makes a handover. told: a handover is under way. left: a handover is under way and the parent was removed. cut: no handover can come';

COMMENT ON COLUMN forge_handovers.id IS 'Order of the ends';

COMMENT ON COLUMN forge_handovers.queue IS 'The queue of the child';

COMMENT ON COLUMN forge_handovers.child_id IS 'The job that waits';

COMMENT ON COLUMN forge_handovers.parent_id IS 'The job that ended';

COMMENT ON COLUMN forge_handovers.parent_status IS 'How the parent ended: done, dead or cancelled';

COMMENT ON COLUMN forge_handovers.on_failure IS 'What a dead or cancelled parent means for the child: cancel, continue or hold';

COMMENT ON COLUMN forge_queues.name IS 'Name of the queue';

COMMENT ON COLUMN forge_queues.max_workers IS 'Handlers at once in the whole fleet';

COMMENT ON COLUMN forge_queues.cooldown IS 'JSON: how long the queue rests after a failure that asks for it';

COMMENT ON COLUMN forge_queues.retention IS 'JSON: how long ended jobs are kept, and how many';

COMMENT ON COLUMN forge_queues.retry IS 'JSON of the retry policy; null: the policy of the runtime';

COMMENT ON COLUMN forge_queues.overridden IS 'JSON list of the settings that an operator has changed; programs leave them alone';

COMMENT ON COLUMN forge_queues.paused IS 'True while no job is claimed';

COMMENT ON COLUMN forge_queues.paused_at IS 'When the queue was paused, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_queues.cooldown_until IS 'End of the current or last cool-down, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_queues.cooldown_level IS 'How many cool-downs followed each other';

COMMENT ON COLUMN forge_queues.allocation_version IS 'Grows with each change of the grants, but for time';

COMMENT ON COLUMN forge_pods.host_id IS 'Identifies the process';

COMMENT ON COLUMN forge_pods.epoch IS 'Of the registration: a pod that registers again gets a new one';

COMMENT ON COLUMN forge_pods.label IS 'Host name and process, for people';

COMMENT ON COLUMN forge_pods.version IS 'Release of the program';

COMMENT ON COLUMN forge_pods.process_id IS 'Of the operating system';

COMMENT ON COLUMN forge_pods.queues IS 'JSON list of the queues that the pod serves';

COMMENT ON COLUMN forge_pods.kinds IS 'JSON list of the kinds that the pod has handlers for';

COMMENT ON COLUMN forge_pods.concurrency IS 'Handlers at once over all queues; NULL: as many as the pod has slots';

COMMENT ON COLUMN forge_pods.routes IS 'JSON object: kind to queue';

COMMENT ON COLUMN forge_pods.started_at IS 'When the process registered, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_pods.last_beat_at IS 'The last heartbeat, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_pods.lease_until IS 'The pod counts as dead after this instant, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_pods.draining IS 'True while the pod stops and takes no further job';

COMMENT ON COLUMN forge_pods.gauges IS 'JSON: what the pod measured last';

COMMENT ON COLUMN forge_slots.queue IS 'Name of the queue';

COMMENT ON COLUMN forge_slots.host_id IS 'The pod';

COMMENT ON COLUMN forge_slots.epoch IS 'The registration that the slots belong to; a row of an older epoch is void';

COMMENT ON COLUMN forge_slots.target IS 'Slots that the leader wants the pod to have';

COMMENT ON COLUMN forge_slots.granted IS 'Slots that the pod may use now';

COMMENT ON COLUMN forge_leader.name IS 'Always leader';

COMMENT ON COLUMN forge_leader.host_id IS 'The pod that leads';

COMMENT ON COLUMN forge_leader.term IS 'Grows with each change of the leader';

COMMENT ON COLUMN forge_leader.renewed_at IS 'The last renewal, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_leader.lease_until IS 'Another pod may lead after this instant, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_schedules.name IS 'Name of the schedule';

COMMENT ON COLUMN forge_schedules.spec IS 'JSON: cron expression, time zone, and the job';

COMMENT ON COLUMN forge_schedules.version IS 'Grows with each change';

COMMENT ON COLUMN forge_schedules.paused IS 'True while nothing fires';

COMMENT ON COLUMN forge_schedules.edited IS 'True when an operator has changed the schedule; programs leave it alone';

COMMENT ON COLUMN forge_schedules.deleted IS 'True when an operator has removed the schedule; programs do not bring it back';

COMMENT ON COLUMN forge_schedules.next_at IS 'The next fire, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_schedules.last_fired_at IS 'The last fire, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_schedules.fired IS 'Number of fires';

COMMENT ON COLUMN forge_schedules.skipped IS 'Number of fires that were left out';

COMMENT ON COLUMN forge_schedules.error IS 'Why the schedule cannot fire, empty when it can';

COMMENT ON COLUMN forge_rate_limits.scope IS 'Name of the limit';

COMMENT ON COLUMN forge_rate_limits.capacity IS 'Tokens of a full bucket';

COMMENT ON COLUMN forge_rate_limits.period_us IS 'Microseconds in which an empty bucket fills';

COMMENT ON COLUMN forge_rate_limits.level IS 'What is taken of the bucket at updated_at, in 1/period_us of a token';

COMMENT ON COLUMN forge_rate_limits.updated_at IS 'In microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_rate_limits.last_turn_at IS 'The last turn given to a job that waits for tokens, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_rate_limits.overridden IS 'True when an operator has changed the limit; programs leave it alone';

COMMENT ON COLUMN forge_counters.queue IS 'Name of the queue';

COMMENT ON COLUMN forge_counters.minute IS 'Begin of the minute, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_counters.host_id IS 'The pod that counted; empty once rolled up, and for changes that no pod made';

COMMENT ON COLUMN forge_counters.part IS 'The writer, so that two never wait for each other; empty once rolled up';

COMMENT ON COLUMN forge_counters.name IS 'What was counted';

COMMENT ON COLUMN forge_counters.count IS 'How often';

COMMENT ON COLUMN forge_latencies.queue IS 'Name of the queue';

COMMENT ON COLUMN forge_latencies.minute IS 'Begin of the minute, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_latencies.host_id IS 'The pod that measured; empty once rolled up';

COMMENT ON COLUMN forge_latencies.processing IS 'JSON: runs by length';

COMMENT ON COLUMN forge_latencies.total IS 'JSON: time from due to the end, by length';

COMMENT ON COLUMN forge_gauges.minute IS 'Begin of the minute, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_gauges.host_id IS 'The pod';

COMMENT ON COLUMN forge_gauges.gauges IS 'JSON: what the pod measured';

COMMENT ON COLUMN forge_events.id IS 'Order of writing';

COMMENT ON COLUMN forge_events.at IS 'In microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_events.kind IS 'What happened';

COMMENT ON COLUMN forge_events.queue IS 'Name of the queue, empty when none is meant';

COMMENT ON COLUMN forge_events.job_id IS 'The job, empty when none is meant';

COMMENT ON COLUMN forge_events.host_id IS 'The pod, empty when none is meant';

COMMENT ON COLUMN forge_events.detail IS 'For people';

COMMENT ON COLUMN forge_hours.queue IS 'Name of the queue';

COMMENT ON COLUMN forge_hours.hour IS 'Begin of the hour, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_hours.counts IS 'JSON: what was counted';

COMMENT ON COLUMN forge_hours.processing IS 'JSON: runs by length';

COMMENT ON COLUMN forge_hours.total IS 'JSON: time from due to the end, by length';

COMMENT ON COLUMN forge_pod_hours.hour IS 'Begin of the hour, in microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_pod_hours.host_id IS 'The pod';

COMMENT ON COLUMN forge_pod_hours.gauges IS 'JSON: the last gauges of the pod in this hour';

COMMENT ON TABLE forge_noted_beats IS 'Heartbeats of claims whose jobs a transaction of another program has locked.';

COMMENT ON COLUMN forge_noted_beats.job_id IS 'The claimed job';

COMMENT ON COLUMN forge_noted_beats.token IS 'Fence of the claim';

COMMENT ON COLUMN forge_noted_beats.beat_at IS 'In microseconds since 1970-01-01 UTC';

COMMENT ON TABLE forge_signals IS 'Numbers that grow with each wake-up, for processes that look at the file; not used on PostgreSQL.';

COMMENT ON COLUMN forge_signals.topic IS 'handover, beat, fleet, or queue: and the name of a queue';

COMMENT ON COLUMN forge_signals.seq IS 'Grows by one with each commit that wakes waiters of the topic';

COMMENT ON TABLE forge_migrations IS 'Applied changes of the schema.';

COMMENT ON COLUMN forge_migrations.version IS 'Number of the migration';

COMMENT ON COLUMN forge_migrations.name IS 'What the migration is for';

COMMENT ON COLUMN forge_migrations.checksum IS 'SHA-256 of the file';

COMMENT ON COLUMN forge_migrations.applied_at IS 'In microseconds since 1970-01-01 UTC';

COMMENT ON COLUMN forge_migrations.works_from IS 'The oldest version whose programs work with the schema; NULL: only programs that know this one';

COMMIT;

-- Reads the tables beside their writers. Records that were spoilt before stay, and so does NOT VALID.
DO $$ BEGIN
    ALTER TABLE forge_jobs VALIDATE CONSTRAINT forge_jobs_known_status;
    ALTER TABLE forge_handovers VALIDATE CONSTRAINT forge_handovers_known_status;
EXCEPTION WHEN check_violation THEN
    NULL;
END $$;
