DROP FUNCTION forge_enqueue(text, jsonb, text, int, timestamptz, interval, int, text, text[], interval, timestamptz, boolean, text, text, text);

DROP FUNCTION forge_enqueue(text, text, text, int, timestamptz, interval, int, text, text[], interval, timestamptz, boolean, text, text, text);

DROP FUNCTION forge_key_of(text, text, boolean, text);

DROP FUNCTION forge_order_of(text);

CREATE OR REPLACE FUNCTION forge_enqueue(
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
    now_us bigint := extract(epoch FROM clock_timestamp()) * 1000000;
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
        -- Of a holder and the follow-up that waits for the holder's end, the holder.
        SELECT * INTO found_job FROM forge_jobs
        WHERE queue = forge_enqueue.queue
            AND unique_key IN (forge_enqueue.unique_key, forge_enqueue.unique_key || E'\x1f1',
                forge_enqueue.unique_key || E'\x1f2')
            AND status IN ('blocked', 'pending', 'in_progress', 'failed')
        ORDER BY status = 'blocked' AND unique_key <> forge_enqueue.unique_key LIMIT 1;
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
    IF stored AND due_us <= now_us AND current_setting('forge_jobs.notify', true) IS DISTINCT FROM 'off' THEN
        PERFORM pg_notify('forge_jobs_' || md5(current_schema()), 'queue:' || forge_enqueue.queue);
    END IF;
    RETURN CASE WHEN stored THEN new_id ELSE found_job.id END;
END $$;

CREATE OR REPLACE FUNCTION forge_enqueue(
    kind text,
    payload jsonb,
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
) RETURNS text LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    SELECT forge_enqueue(kind, payload::text, queue, priority, run_at, delay, max_attempts, unique_key, tags,
        timeout, expires_at, keep_result, id)
$$;
