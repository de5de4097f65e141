-- works-from: 1
-- forge_enqueue puts jobs into the sequences and limits that pods have published for the kind, or that the caller names.

DROP FUNCTION forge_enqueue(text, jsonb, text, int, timestamptz, interval, int, text, text[], interval, timestamptz, boolean, text);

DROP FUNCTION forge_enqueue(text, text, text, int, timestamptz, interval, int, text, text[], interval, timestamptz, boolean, text);

-- What pods have published of the sequence and the limit of a kind. With the rights of the owner, so that a role that
-- may only enqueue needs no others.
CREATE FUNCTION forge_order_of(
    name text, OUT kind text, OUT in_line json, OUT limited json, OUT is_private boolean
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    told text;
BEGIN
    SELECT document INTO told FROM forge_kinds
    WHERE forge_kinds.kind = forge_order_of.name AND document ~ '"(sequence|concurrency)":\{';
    IF FOUND THEN
        kind := told::json ->> 'kind';
        in_line := CASE json_typeof(told::json #> '{sequence,key}') WHEN 'string' THEN told::json -> 'sequence' END;
        limited := CASE json_typeof(told::json #> '{concurrency,key}') WHEN 'string' THEN told::json -> 'concurrency' END;
        -- A schema that was too long for the document may have secrets.
        is_private := (told::json ->> 'is_encrypted')::boolean OR told ~ '"writeOnly":true'
            OR (told::json -> 'payload_schema')::text = '{}';
    END IF;
EXCEPTION WHEN invalid_text_representation THEN
    -- A spoilt document says nothing.
    kind := NULL;
    in_line := NULL;
    limited := NULL;
END $$;

-- The key that Python makes of the payload. Refused where only Python can make it: hashes, and numbers with fractions.
CREATE FUNCTION forge_key_of(field text, template text, is_private boolean, payload text)
RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    made text := '';
    piece text;
    value json;
BEGIN
    IF template = '' THEN
        RETURN '';
    END IF;
    FOR piece IN SELECT part[1] FROM regexp_matches(template, '\{[^{}]*\}|[^{}]+', 'g') AS part LOOP
        value := CASE WHEN piece ~ '^\{' THEN payload::json -> btrim(piece, '{}') END;
        made := made || CASE
            WHEN piece !~ '^\{' THEN piece
            WHEN value IS NULL THEN ''
            WHEN json_typeof(value) = 'string' THEN value #>> '{}'
            WHEN json_typeof(value) IN ('boolean', 'null') OR value::text ~ '^(0|-?[1-9][0-9]*)$' THEN value::text
        END;
    END LOOP;
    IF is_private OR template ~ '\{\{|\}\}' OR made IS NULL OR char_length(made) NOT BETWEEN 1 AND 200
        OR made ~ E'^#|[,\\u0001-\\u001f\\u007f-\\u009f\\u2028\\u2029]' THEN
        RAISE EXCEPTION '%: is missing; SQL cannot make %, so give the key, or an empty text for none',
            field, quote_literal(template) USING ERRCODE = 'invalid_parameter_value';
    END IF;
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
    id text DEFAULT NULL,
    sequence_key text DEFAULT NULL,
    concurrency_key text DEFAULT NULL
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
    declared record;
    limit_of_job text;
    key_of_limit text := '';
    line_of_job text;
    rule text := 'wait';
    last_id text;
    last_status text;
BEGIN
    PERFORM forge_check_name('kind', forge_enqueue.kind);
    PERFORM forge_check_name('queue', forge_enqueue.queue);
    PERFORM forge_check_payload(forge_enqueue.payload);
    IF forge_enqueue.unique_key IS NOT NULL THEN
        PERFORM forge_check_name('unique_key', forge_enqueue.unique_key);
    END IF;
    IF forge_enqueue.sequence_key <> '' THEN
        PERFORM forge_check_name('sequence_key', forge_enqueue.sequence_key);
    END IF;
    IF forge_enqueue.concurrency_key <> '' THEN
        PERFORM forge_check_name('concurrency_key', forge_enqueue.concurrency_key);
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
    SELECT * INTO declared FROM forge_order_of(forge_enqueue.kind);
    IF declared.limited IS NOT NULL OR forge_enqueue.concurrency_key IS NOT NULL THEN
        limit_of_job := coalesce(nullif(declared.limited ->> 'name', ''), declared.kind, forge_enqueue.kind);
        key_of_limit := coalesce(forge_enqueue.concurrency_key, forge_key_of('concurrency_key',
            declared.limited ->> 'key', declared.is_private, forge_enqueue.payload));
    END IF;
    IF coalesce(forge_enqueue.sequence_key <> '', declared.in_line IS NOT NULL) THEN
        rule := coalesce(declared.in_line ->> 'on_failure', 'wait');
        line_of_job := forge_enqueue.queue || E'\n' || coalesce(forge_enqueue.sequence_key, forge_key_of(
            'sequence_key', declared.in_line ->> 'key', declared.is_private, forge_enqueue.payload));
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
        IF line_of_job IS NOT NULL THEN
            -- In the order of Python: the sequence, the job that is last, the queue. Else calls could deadlock.
            FOR again IN 1..20 LOOP
                INSERT INTO forge_sequences (line, job_id) VALUES (line_of_job, '') ON CONFLICT DO NOTHING;
                SELECT job_id INTO last_id FROM forge_sequences WHERE line = line_of_job FOR UPDATE;
                EXIT WHEN FOUND;
            END LOOP;
            SELECT status INTO last_status FROM forge_jobs
            WHERE id = last_id AND status <> 'done' FOR NO KEY UPDATE;
        END IF;
        IF NOT EXISTS (SELECT FROM forge_queues WHERE name = forge_enqueue.queue) THEN
            INSERT INTO forge_queues (name, max_workers, cooldown, retention, retry)
            VALUES (forge_enqueue.queue, 1,
                '{"mode":"flat","base":"PT60S","cap":"PT1800S","quiet":"PT120S"}',
                '{"done":"P7D","dead":"P30D","cancelled":"P30D","max_done":null,"max_dead":null,"max_cancelled":null}',
                'null')
            ON CONFLICT DO NOTHING;
        END IF;
        INSERT INTO forge_jobs (id, queue, kind, payload, status, cause, priority, run_at, requested_run_at,
            enqueued_at, token, expires_at, timeout_us, max_attempts, unique_key, tags, keep_result,
            has_children, limit_name, limit_key)
        VALUES (new_id, forge_enqueue.queue, forge_enqueue.kind, forge_enqueue.payload,
            CASE WHEN last_status IS NULL THEN 'pending' ELSE 'blocked' END, 'enqueued',
            forge_enqueue.priority, due_us,
            CASE WHEN forge_enqueue.run_at IS NOT NULL OR forge_enqueue.delay IS NOT NULL THEN due_us END,
            now_us, now_us, extract(epoch FROM forge_enqueue.expires_at) * 1000000,
            extract(epoch FROM forge_enqueue.timeout) * 1000000, forge_enqueue.max_attempts,
            forge_enqueue.unique_key, labels, forge_enqueue.keep_result,
            line_of_job IS NOT NULL, limit_of_job, key_of_limit)
        ON CONFLICT DO NOTHING;
        -- Else another transaction has stored the id or the key meanwhile.
        stored := FOUND;
        EXIT WHEN stored;
    END LOOP;
    IF NOT stored AND found_job.id IS NULL THEN
        RAISE EXCEPTION 'other transactions were faster all the time' USING ERRCODE = 'serialization_failure';
    END IF;
    IF line_of_job IS NOT NULL AND stored THEN
        UPDATE forge_sequences SET job_id = new_id WHERE line = line_of_job;
        INSERT INTO forge_members (job_id, line, on_failure) VALUES (new_id, line_of_job, rule) ON CONFLICT DO NOTHING;
        IF last_status IS NOT NULL THEN
            UPDATE forge_jobs SET has_children = true WHERE id = last_id AND NOT has_children;
            INSERT INTO forge_edges (child_id, parent_id, child_queue, on_failure, link)
            VALUES (new_id, last_id, forge_enqueue.queue, rule,
                CASE WHEN last_status IN ('dead', 'cancelled') THEN 'told' ELSE 'live' END);
        END IF;
        IF last_status IN ('dead', 'cancelled') THEN
            INSERT INTO forge_handovers (queue, child_id, parent_id, parent_status, on_failure)
            VALUES (forge_enqueue.queue, new_id, last_id, last_status, rule);
            IF current_setting('forge_jobs.notify', true) IS DISTINCT FROM 'off' THEN
                PERFORM pg_notify('forge_jobs_' || md5(current_schema()), 'handover');
            END IF;
        END IF;
    ELSIF line_of_job IS NOT NULL THEN
        DELETE FROM forge_sequences WHERE line = line_of_job AND job_id = '';
    END IF;
    INSERT INTO forge_counters (queue, minute, host_id, part, name, count)
    VALUES (forge_enqueue.queue, now_us - now_us % 60000000, '', forge_new_id(),
        CASE WHEN stored THEN 'enqueued' ELSE 'deduplicated' END, 1);
    IF stored AND last_status IS NULL AND due_us <= now_us AND current_setting('forge_jobs.notify', true) IS DISTINCT FROM 'off' THEN
        PERFORM pg_notify('forge_jobs_' || md5(current_schema()), 'queue:' || forge_enqueue.queue);
    END IF;
    RETURN CASE WHEN stored THEN new_id ELSE found_job.id END;
END $$;

CREATE FUNCTION forge_enqueue(
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
    id text DEFAULT NULL,
    sequence_key text DEFAULT NULL,
    concurrency_key text DEFAULT NULL
) RETURNS text LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    SELECT forge_enqueue(kind, payload::text, queue, priority, run_at, delay, max_attempts, unique_key, tags,
        timeout, expires_at, keep_result, id, sequence_key, concurrency_key)
$$;
