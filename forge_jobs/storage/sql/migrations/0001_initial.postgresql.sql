CREATE TABLE forge_counters (
    queue TEXT COLLATE "C" NOT NULL,
    minute BIGINT NOT NULL,
    host_id TEXT COLLATE "C" NOT NULL,
    part TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    count BIGINT NOT NULL,
    PRIMARY KEY (queue, minute, host_id, part, name)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX forge_counters_by_minute ON forge_counters (minute);

CREATE INDEX forge_counters_unfolded ON forge_counters (minute) WHERE part <> '';

CREATE TABLE forge_edges (
    child_id TEXT COLLATE "C" NOT NULL,
    parent_id TEXT COLLATE "C" NOT NULL,
    child_queue TEXT COLLATE "C" NOT NULL,
    on_failure TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" DEFAULT 'open' NOT NULL,
    link TEXT COLLATE "C" DEFAULT 'live' NOT NULL,
    PRIMARY KEY (child_id, parent_id)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX forge_edges_by_parent ON forge_edges (parent_id) WHERE link IN ('live', 'told');

CREATE TABLE forge_events (
    id BIGSERIAL NOT NULL,
    at BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    job_id TEXT COLLATE "C" NOT NULL,
    host_id TEXT COLLATE "C" NOT NULL,
    detail TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (id)
);

CREATE INDEX forge_events_by_job ON forge_events (job_id, at, id);

CREATE INDEX forge_events_by_queue ON forge_events (queue, at, id);

CREATE INDEX forge_events_by_time ON forge_events (at, id);

CREATE TABLE forge_gauges (
    minute BIGINT NOT NULL,
    host_id TEXT COLLATE "C" NOT NULL,
    gauges TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (minute, host_id)
);

CREATE TABLE forge_handovers (
    id BIGSERIAL NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    child_id TEXT COLLATE "C" NOT NULL,
    parent_id TEXT COLLATE "C" NOT NULL,
    parent_status TEXT COLLATE "C" NOT NULL,
    on_failure TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (id)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE forge_jobs (
    id TEXT COLLATE "C" NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    payload TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    cause TEXT COLLATE "C" NOT NULL,
    hold TEXT COLLATE "C",
    priority INTEGER NOT NULL,
    run_at BIGINT NOT NULL,
    requested_run_at BIGINT,
    enqueued_at BIGINT NOT NULL,
    expires_at BIGINT,
    timeout_us BIGINT,
    attempt INTEGER DEFAULT '0' NOT NULL,
    max_attempts INTEGER,
    crashes INTEGER DEFAULT '0' NOT NULL,
    snoozes INTEGER DEFAULT '0' NOT NULL,
    snoozed_at BIGINT,
    rate_limit TEXT COLLATE "C",
    token BIGINT NOT NULL,
    settled_token BIGINT DEFAULT '0' NOT NULL,
    host_id TEXT COLLATE "C" DEFAULT '' NOT NULL,
    worker_id TEXT COLLATE "C" DEFAULT '' NOT NULL,
    claimed_at BIGINT,
    started_at BIGINT,
    heartbeat_at BIGINT,
    finished_at BIGINT,
    cancel_requested BOOLEAN DEFAULT false NOT NULL,
    unique_key TEXT COLLATE "C",
    has_children BOOLEAN DEFAULT false NOT NULL,
    tags TEXT COLLATE "C" DEFAULT '[]' NOT NULL,
    metadata TEXT COLLATE "C" DEFAULT '{}' NOT NULL,
    trace TEXT COLLATE "C" DEFAULT '' NOT NULL,
    schedule TEXT COLLATE "C" DEFAULT '' NOT NULL,
    fingerprint TEXT COLLATE "C" DEFAULT '' NOT NULL,
    keep_result BOOLEAN DEFAULT true NOT NULL,
    result_ttl_us BIGINT,
    result TEXT COLLATE "C",
    result_expires_at BIGINT,
    errors TEXT COLLATE "C" DEFAULT '[]' NOT NULL,
    PRIMARY KEY (id)
)
 WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000, autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX forge_jobs_by_queue ON forge_jobs (queue, status, id);

CREATE INDEX forge_jobs_expiring ON forge_jobs (expires_at, id) WHERE expires_at IS NOT NULL AND status IN ('blocked', 'pending', 'failed');

CREATE INDEX forge_jobs_finished ON forge_jobs (queue, status, finished_at, id) WHERE status IN ('done', 'dead', 'cancelled');

CREATE INDEX forge_jobs_held ON forge_jobs (queue, kind) WHERE hold IS NOT NULL;

CREATE INDEX forge_jobs_keyed ON forge_jobs (unique_key) WHERE unique_key IS NOT NULL;

CREATE INDEX forge_jobs_owned ON forge_jobs (host_id, queue, id) WHERE status = 'in_progress';

CREATE INDEX forge_jobs_ready ON forge_jobs (queue, priority, run_at, id, kind) WHERE status IN ('pending', 'failed') AND hold IS NULL;

CREATE INDEX forge_jobs_results ON forge_jobs (result_expires_at) WHERE result_expires_at IS NOT NULL;

CREATE INDEX forge_jobs_scheduled ON forge_jobs (schedule) WHERE schedule <> '' AND status IN ('blocked', 'pending', 'in_progress', 'failed');

CREATE UNIQUE INDEX forge_jobs_unique ON forge_jobs (queue, unique_key) WHERE unique_key IS NOT NULL AND status IN ('blocked', 'pending', 'in_progress', 'failed');

CREATE TABLE forge_latencies (
    queue TEXT COLLATE "C" NOT NULL,
    minute BIGINT NOT NULL,
    host_id TEXT COLLATE "C" NOT NULL,
    processing TEXT COLLATE "C" NOT NULL,
    total TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (queue, minute, host_id)
);

CREATE INDEX forge_latencies_by_minute ON forge_latencies (minute);

CREATE INDEX forge_latencies_unfolded ON forge_latencies (minute) WHERE host_id <> '';

CREATE TABLE forge_leader (
    name TEXT COLLATE "C" NOT NULL,
    host_id TEXT COLLATE "C" NOT NULL,
    term BIGINT NOT NULL,
    renewed_at BIGINT NOT NULL,
    lease_until BIGINT NOT NULL,
    PRIMARY KEY (name)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE forge_pods (
    host_id TEXT COLLATE "C" NOT NULL,
    epoch TEXT COLLATE "C" NOT NULL,
    label TEXT COLLATE "C" NOT NULL,
    version TEXT COLLATE "C" NOT NULL,
    process_id INTEGER NOT NULL,
    queues TEXT COLLATE "C" NOT NULL,
    kinds TEXT COLLATE "C" NOT NULL,
    concurrency INTEGER,
    routes TEXT COLLATE "C" DEFAULT '{}' NOT NULL,
    started_at BIGINT NOT NULL,
    last_beat_at BIGINT NOT NULL,
    lease_until BIGINT NOT NULL,
    draining BOOLEAN DEFAULT false NOT NULL,
    gauges TEXT COLLATE "C",
    PRIMARY KEY (host_id)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE forge_queues (
    name TEXT COLLATE "C" NOT NULL,
    max_workers INTEGER NOT NULL,
    cooldown TEXT COLLATE "C" NOT NULL,
    retention TEXT COLLATE "C" NOT NULL,
    retry TEXT COLLATE "C" NOT NULL,
    overridden TEXT COLLATE "C" DEFAULT '[]' NOT NULL,
    paused BOOLEAN DEFAULT false NOT NULL,
    paused_at BIGINT,
    cooldown_until BIGINT,
    cooldown_level INTEGER DEFAULT '0' NOT NULL,
    allocation_version BIGINT DEFAULT '0' NOT NULL,
    PRIMARY KEY (name)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE forge_rate_limits (
    scope TEXT COLLATE "C" NOT NULL,
    capacity BIGINT NOT NULL,
    period_us BIGINT NOT NULL,
    level BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    last_turn_at BIGINT DEFAULT '0' NOT NULL,
    overridden BOOLEAN DEFAULT false NOT NULL,
    PRIMARY KEY (scope)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE forge_schedules (
    name TEXT COLLATE "C" NOT NULL,
    spec TEXT COLLATE "C" NOT NULL,
    version BIGINT DEFAULT '1' NOT NULL,
    paused BOOLEAN DEFAULT false NOT NULL,
    edited BOOLEAN DEFAULT false NOT NULL,
    deleted BOOLEAN DEFAULT false NOT NULL,
    next_at BIGINT,
    last_fired_at BIGINT,
    fired BIGINT DEFAULT '0' NOT NULL,
    skipped BIGINT DEFAULT '0' NOT NULL,
    error TEXT COLLATE "C" DEFAULT '' NOT NULL,
    PRIMARY KEY (name)
);

CREATE INDEX forge_schedules_due ON forge_schedules (next_at);

CREATE TABLE forge_signals (
    topic TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    PRIMARY KEY (topic)
);

CREATE TABLE forge_slots (
    queue TEXT COLLATE "C" NOT NULL,
    host_id TEXT COLLATE "C" NOT NULL,
    epoch TEXT COLLATE "C" NOT NULL,
    target INTEGER DEFAULT '0' NOT NULL,
    granted INTEGER DEFAULT '0' NOT NULL,
    PRIMARY KEY (queue, host_id)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX forge_slots_by_pod ON forge_slots (host_id);

-- Functions: enqueue by plain SQL, for programs in other languages.

SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true);

CREATE FUNCTION forge_check_name(field text, value text) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF value IS NULL OR char_length(value) NOT BETWEEN 1 AND 200
        OR value ~ E'[,\\u0001-\\u001f\\u007f-\\u009f\\u2028\\u2029]' THEN
        RAISE EXCEPTION '%: is no name; give 1 to 200 characters without control characters or commas', field
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;

CREATE FUNCTION forge_check_payload(payload text) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    problem text;
BEGIN
    IF octet_length(payload) > 1048576 THEN
        problem := 'takes more than 1048576 bytes; store it elsewhere and pass a reference';
    ELSE
        -- As json, not jsonb: of equal keys every value is looked at. Texts are unescaped on the way,
        -- which refuses NUL characters and lone surrogates.
        WITH RECURSIVE part (value, depth) AS (
            SELECT payload::json, 1
            UNION ALL
            SELECT child.value, part.depth + 1
            FROM part, LATERAL (
                SELECT value FROM json_each(
                    CASE json_typeof(part.value) WHEN 'object' THEN part.value ELSE '{}' END)
                UNION ALL
                SELECT value FROM json_array_elements(
                    CASE json_typeof(part.value) WHEN 'array' THEN part.value ELSE '[]' END)
            ) AS child
            WHERE part.depth <= 100
        )
        SELECT CASE
            WHEN bool_or(depth = 1 AND json_typeof(value) <> 'object') THEN
                'is not a JSON object; give the arguments by name'
            WHEN bool_or(depth > 100 AND json_typeof(value) IN ('object', 'array')) THEN
                'nests deeper than 100 levels; flatten it'
            WHEN bool_or(json_typeof(value) = 'string' AND value #>> '{}' IS NULL) THEN 'is not valid'
            WHEN bool_or(CASE WHEN json_typeof(value) <> 'number' THEN false
                WHEN value::text ~ '^-?[0-9]+$' THEN
                    value::text::numeric NOT BETWEEN -9223372036854775808 AND 18446744073709551615
                ELSE abs(value::text::numeric) >= 1.7976931348623158e308 END) THEN
                'holds a number beyond 64 bits; give it as a string'
            END
        INTO problem FROM part;
    END IF;
    IF problem IS NOT NULL OR payload IS NULL THEN
        RAISE EXCEPTION 'payload: %', coalesce(problem, 'is null; give a JSON object')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
EXCEPTION
    WHEN invalid_text_representation OR untranslatable_character OR statement_too_complex
        OR numeric_value_out_of_range THEN
        RAISE EXCEPTION 'payload: is not JSON that can be kept; give one valid JSON object'
            USING ERRCODE = 'invalid_parameter_value';
END $$;

CREATE FUNCTION forge_new_id() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    digits CONSTANT text := '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
    milliseconds bigint := extract(epoch FROM clock_timestamp()) * 1000;
    -- Of a version 4 UUID all bits are random but those of bytes 6 and 8 that are left out here.
    noise bytea := uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid());
    made text := '';
BEGIN
    FOR place IN REVERSE 9..0 LOOP
        made := made || substr(digits, ((milliseconds >> (5 * place)) & 31)::int + 1, 1);
    END LOOP;
    FOR place IN 0..15 LOOP
        made := made || substr(digits, (get_byte(noise, CASE place WHEN 6 THEN 16 ELSE place END) & 31) + 1, 1);
    END LOOP;
    RETURN made;
END $$;

CREATE FUNCTION forge_enqueue(
    kind text,
    payload text DEFAULT '{}',
    queue text DEFAULT 'default',
    priority int DEFAULT 0,
    run_at timestamptz DEFAULT NULL,
    delay interval DEFAULT NULL,
    max_attempts int DEFAULT 5,
    unique_key text DEFAULT NULL,
    tags text[] DEFAULT '{}',
    timeout interval DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL,
    keep_result boolean DEFAULT true,
    id text DEFAULT NULL
) RETURNS text LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    century CONSTANT interval := interval '36500 days';
    now_us bigint := extract(epoch FROM statement_timestamp()) * 1000000;
    due_us bigint;
    new_id text := coalesce(upper(forge_enqueue.id), forge_new_id());
    labels text := '[]';
    problem text;
    found_job forge_jobs%ROWTYPE;
    stored boolean := false;
BEGIN
    PERFORM forge_check_name('kind', forge_enqueue.kind);
    PERFORM forge_check_name('queue', forge_enqueue.queue);
    PERFORM forge_check_payload(forge_enqueue.payload);
    IF forge_enqueue.unique_key IS NOT NULL THEN
        PERFORM forge_check_name('unique_key', forge_enqueue.unique_key);
    END IF;
    PERFORM forge_check_name('tags', tag) FROM unnest(forge_enqueue.tags) AS tag;
    problem := CASE
        WHEN new_id !~ '^[0-7][0-9A-HJKMNP-TV-Z]{25}$' THEN 'id: is not a ULID; give 26 characters'
        WHEN coalesce(forge_enqueue.priority NOT BETWEEN -100 AND 100, true) THEN
            'priority: is out of bounds; give -100 to 100, lower first'
        WHEN forge_enqueue.max_attempts NOT BETWEEN 1 AND 1000000 THEN
            'max_attempts: is out of bounds; give 1 to 1000000, or null for no bound'
        WHEN forge_enqueue.run_at IS NOT NULL AND forge_enqueue.delay IS NOT NULL THEN
            'run_at: is given together with delay; give one of them'
        WHEN NOT isfinite(forge_enqueue.run_at) OR forge_enqueue.run_at >= '10000-01-01 00:00+00'
            OR forge_enqueue.run_at < '0001-01-01 00:00+00' THEN
            'run_at: is out of bounds; give an instant of the years 1 to 9999'
        WHEN NOT isfinite(forge_enqueue.expires_at) OR forge_enqueue.expires_at >= '10000-01-01 00:00+00'
            OR forge_enqueue.expires_at < '0001-01-01 00:00+00' THEN
            'expires_at: is out of bounds; give an instant of the years 1 to 9999'
        WHEN forge_enqueue.delay < interval '0' OR forge_enqueue.delay > century THEN
            'delay: is out of bounds; give zero or more, at most a hundred years'
        WHEN forge_enqueue.timeout <= interval '0' OR forge_enqueue.timeout > century THEN
            'timeout: is out of bounds; give more than zero, at most a hundred years'
        WHEN forge_enqueue.keep_result IS NULL THEN 'keep_result: is null; give true or false'
    END;
    IF problem IS NULL AND cardinality(forge_enqueue.tags) > 0 THEN
        SELECT '[' || string_agg(to_json(tag)::text, ',' ORDER BY place) || ']',
            CASE WHEN count(*) > 32 THEN 'tags: are too many; give at most 32' END
        INTO labels, problem
        FROM (
            SELECT tag, min(place) AS place
            FROM unnest(forge_enqueue.tags) WITH ORDINALITY AS given (tag, place) GROUP BY tag
        ) AS each;
    END IF;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION '%', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    due_us := CASE
        WHEN forge_enqueue.run_at IS NOT NULL THEN extract(epoch FROM forge_enqueue.run_at) * 1000000
        ELSE now_us + extract(epoch FROM coalesce(forge_enqueue.delay, interval '0')) * 1000000
    END;
    FOR attempt IN 1..20 LOOP
        SELECT * INTO found_job FROM forge_jobs WHERE id = new_id;
        IF FOUND THEN
            IF (found_job.kind, found_job.queue) <> (forge_enqueue.kind, forge_enqueue.queue)
                OR found_job.payload <> forge_enqueue.payload AND NOT (
                    found_job.payload = '' AND found_job.status IN ('done', 'dead', 'cancelled')) THEN
                RAISE EXCEPTION 'the id % is stored already, with another content', new_id
                    USING ERRCODE = 'unique_violation';
            END IF;
            RETURN new_id;
        END IF;
        SELECT * INTO found_job FROM forge_jobs
        WHERE queue = forge_enqueue.queue AND unique_key = forge_enqueue.unique_key
            AND status IN ('blocked', 'pending', 'in_progress', 'failed');
        EXIT WHEN FOUND;
        IF NOT EXISTS (SELECT FROM forge_queues WHERE name = forge_enqueue.queue) THEN
            INSERT INTO forge_queues (name, max_workers, cooldown, retention, retry)
            VALUES (forge_enqueue.queue, 1,
                '{"mode":"flat","base":"PT60S","cap":"PT1800S","quiet":"PT120S"}',
                '{"done":"P7D","dead":"P30D","cancelled":"P30D","max_done":null,"max_dead":null,"max_cancelled":null}',
                'null')
            ON CONFLICT DO NOTHING;
        END IF;
        INSERT INTO forge_jobs (id, queue, kind, payload, status, cause, priority, run_at, requested_run_at,
            enqueued_at, token, expires_at, timeout_us, max_attempts, unique_key, tags, keep_result)
        VALUES (new_id, forge_enqueue.queue, forge_enqueue.kind, forge_enqueue.payload, 'pending', 'enqueued',
            forge_enqueue.priority, due_us,
            CASE WHEN forge_enqueue.run_at IS NOT NULL OR forge_enqueue.delay IS NOT NULL THEN due_us END,
            now_us, now_us, extract(epoch FROM forge_enqueue.expires_at) * 1000000,
            extract(epoch FROM forge_enqueue.timeout) * 1000000, forge_enqueue.max_attempts,
            forge_enqueue.unique_key, labels, forge_enqueue.keep_result)
        ON CONFLICT DO NOTHING;
        -- Else another transaction has stored the id or the key meanwhile.
        stored := FOUND;
        EXIT WHEN stored;
    END LOOP;
    IF NOT stored AND found_job.id IS NULL THEN
        RAISE EXCEPTION 'other transactions were faster all the time' USING ERRCODE = 'serialization_failure';
    END IF;
    INSERT INTO forge_counters (queue, minute, host_id, part, name, count)
    VALUES (forge_enqueue.queue, now_us - now_us % 60000000, '', forge_new_id(),
        CASE WHEN stored THEN 'enqueued' ELSE 'deduplicated' END, 1);
    IF stored AND due_us <= now_us THEN
        PERFORM pg_notify('forge_jobs_' || md5(current_schema()), 'queue:' || forge_enqueue.queue);
    END IF;
    RETURN CASE WHEN stored THEN new_id ELSE found_job.id END;
END $$;
