-- works-from: 1
-- A claim looks at fewer keys that take turns, and says when there are more of them. Claims within limits begin
-- behind dead entries, as others do, and give the columns of a job, not the row.

-- The jobs on hold whose turn it is, of keys of limits with a share. All due jobs of such limits go on hold, and
-- an opening is the turn of a key: see hot/turns.py, which does the same on SQLite.
--   ids, levels, times: at most as many as wanted, the first one first, each with its priority and its turn
--   is_more:            there may be more
--   is_spent:           more jobs have to be put on hold first
--   wakes:              other pods have to look for work
CREATE OR REPLACE FUNCTION forge_take_turns(
    of_queue text, at_time bigint, most int, known text[], places int, shared text[],
    OUT ids text[], OUT levels int[], OUT times bigint[], OUT is_more boolean, OUT is_spent boolean, OUT wakes boolean
)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    most_parked CONSTANT int := 1000;
    -- As many keys as jobs may be taken: of each key one comes first.
    most_turns CONSTANT int := greatest(100, most);
    most_read CONSTANT int := 2000;
    names text[];
    keys text[];
    before int;
    size int := most;
    met int;
    are_many boolean;
    held int;
    parked int := 0;
    each_most int;
    strange text[];
    closed bigint[];
    locked text[];
BEGIN
    ids := '{}';
    is_more := false;
    is_spent := false;
    SELECT coalesce(array_agg(limit_name), '{}'), coalesce(array_agg(limit_key), '{}') INTO names, keys
    FROM (
        SELECT DISTINCT limit_name, limit_key FROM forge_openings
        WHERE queue = of_queue AND limit_name = ANY (shared)
    ) AS one;
    before := cardinality(names);

    -- Put jobs that come first on hold.
    LOOP
        WITH RECURSIVE levels AS (
            SELECT (
                SELECT priority FROM forge_jobs
                WHERE queue = of_queue AND status IN ('pending', 'failed') AND hold IS NULL
                ORDER BY priority LIMIT 1
            ) AS priority
            UNION ALL
            SELECT (
                SELECT priority FROM forge_jobs
                WHERE queue = of_queue AND priority > levels.priority
                    AND status IN ('pending', 'failed') AND hold IS NULL
                ORDER BY priority LIMIT 1
            )
            FROM levels WHERE levels.priority IS NOT NULL
        ), page AS MATERIALIZED (
            SELECT due.* FROM levels CROSS JOIN LATERAL (
                SELECT id, kind, limit_name FROM forge_jobs
                WHERE queue = of_queue AND priority = levels.priority AND run_at <= at_time
                    AND status IN ('pending', 'failed') AND hold IS NULL
                    AND (expires_at IS NULL OR expires_at > at_time)
                ORDER BY run_at, id
                LIMIT size
            ) AS due
            LIMIT size
        ), mine AS MATERIALIZED (
            SELECT one.id FROM page JOIN forge_jobs AS one ON one.id = page.id
            WHERE page.limit_name = ANY (shared) AND page.kind = ANY (known)
                AND one.status IN ('pending', 'failed') AND coalesce(one.hold, '') = ''
            FOR NO KEY UPDATE OF one SKIP LOCKED
        ), held_now AS (
            UPDATE forge_jobs AS one SET hold = 'limit' FROM mine WHERE one.id = mine.id
            RETURNING one.limit_name, one.limit_key, one.run_at
        ), added AS (
            INSERT INTO forge_openings (queue, limit_name, limit_key, since)
            SELECT of_queue, limit_name, limit_key, since FROM (
                SELECT limit_name, limit_key, min(run_at) AS since FROM held_now GROUP BY limit_name, limit_key
            ) AS one
            WHERE (limit_name, limit_key) NOT IN (
                SELECT name, key FROM unnest(names, keys) AS seen (name, key)
            )
            RETURNING limit_name, limit_key
        )
        SELECT (SELECT count(*) FROM page), (SELECT count(*) FROM held_now),
            names || (SELECT array_agg(limit_name) FROM added), keys || (SELECT array_agg(limit_key) FROM added)
        INTO met, held, names, keys;
        EXIT WHEN held = 0 OR met < size;
        parked := parked + held;
        IF parked >= most_parked THEN
            is_spent := true;
            RETURN;
        END IF;
        size := most_parked;
    END LOOP;
    wakes := cardinality(names) > before;

    -- With very many keys few jobs of each are looked at, and the next claim goes on.
    each_most := least(most, ceil(most_read / greatest(least(cardinality(names), most_turns), 1)::numeric));
    WITH turns AS MATERIALIZED (
        SELECT limit_name, limit_key, min(since) AS since, array_agg(id ORDER BY since, id) AS rows
        FROM (
            SELECT * FROM forge_openings WHERE queue = of_queue AND limit_name = ANY (shared)
            ORDER BY id LIMIT most_turns
        ) AS one
        GROUP BY limit_name, limit_key
    ), room AS MATERIALIZED (
        SELECT turns.*, greatest(bound.share, 1) AS share, bound.at_most, (
            SELECT count(*) FROM forge_jobs AS running
            WHERE running.queue = of_queue AND running.limit_name = turns.limit_name
                AND running.limit_key = turns.limit_key
                AND running.status = 'in_progress' AND running.limit_name IS NOT NULL
        ) AS used
        FROM turns JOIN forge_limits AS bound ON bound.queue = of_queue AND bound.name = turns.limit_name
    ), listed AS MATERIALIZED (
        SELECT room.*, first.*, row_number() OVER (
            PARTITION BY limit_name, limit_key ORDER BY priority, run_at, id
        ) AS place
        FROM room CROSS JOIN LATERAL (
            SELECT id, kind, priority, run_at, crashes FROM forge_jobs AS one
            WHERE one.queue = of_queue AND one.limit_name = room.limit_name AND one.limit_key = room.limit_key
                AND one.hold = 'limit' AND (one.expires_at IS NULL OR one.expires_at > at_time)
            ORDER BY priority, run_at, id
            LIMIT least(each_most, greatest(0, room.at_most - room.used))
        ) AS first
    ), ranked AS (
        SELECT *, row_number() OVER (
            ORDER BY priority, (used + place - 1)::double precision / share, since, limit_name, limit_key, place
        ) AS rank
        FROM listed WHERE kind = ANY (known)
    )
    SELECT coalesce(array_agg(id ORDER BY rank) FILTER (WHERE crashes = 0 OR rank <= places), '{}'),
        coalesce(bool_or(place = each_most AND each_most < most), false),
        coalesce((SELECT sum(cardinality(rows)) FROM turns), 0) >= most_turns,
        ARRAY(SELECT id FROM listed WHERE kind <> ALL (known)),
        ARRAY(
            SELECT unnest(rows[2:]) FROM room
            UNION ALL
            SELECT rows[1] FROM room WHERE at_most <= used OR NOT EXISTS (
                SELECT FROM listed
                WHERE listed.limit_name = room.limit_name AND listed.limit_key = room.limit_key
            )
        )
    INTO ids, is_more, are_many, strange, closed FROM ranked;
    IF cardinality(closed) > 0 THEN
        DELETE FROM forge_openings WHERE id = ANY (closed);
    END IF;
    IF cardinality(strange) > 0 THEN
        -- As any job of a kind that is not known here: another pod takes it, or none is there.
        UPDATE forge_jobs SET hold = NULL WHERE id IN (
            SELECT id FROM forge_jobs WHERE id = ANY (strange) AND hold = 'limit'
            FOR NO KEY UPDATE SKIP LOCKED
        );
        is_more := true;
        wakes := true;
    END IF;
    -- Keys behind those that were looked at. A claim that changes nothing is not repeated for them.
    is_more := is_more OR cardinality(ids) > most OR are_many AND cardinality(ids || closed::text[]) > 0;
    ids := ids[:most];
    locked := ARRAY(
        SELECT id FROM forge_jobs WHERE id = ANY (ids) AND hold = 'limit' AND status IN ('pending', 'failed')
        FOR NO KEY UPDATE SKIP LOCKED
    );
    SELECT coalesce(array_agg(id ORDER BY place), '{}'), array_agg(priority ORDER BY place),
        array_agg(greatest(run_at, since) ORDER BY place)
    INTO ids, levels, times
    FROM (
        SELECT listed.id, place, one.priority, one.run_at, coalesce((
            SELECT min(since) FROM forge_openings
            WHERE queue = of_queue AND limit_name = one.limit_name AND limit_key = one.limit_key
        ), 0) AS since
        FROM unnest(ids) WITH ORDINALITY AS listed (id, place)
        JOIN forge_jobs AS one ON one.id = listed.id
        WHERE listed.id = ANY (locked)
    ) AS one;
END $$;

-- As forge_claim_within_limits, which programs before this migration call, and in addition:
--   from_level, from_time: where claims begin that need not decide about each job, see claim_cursors.py
--   is_clear:              such a claim
-- Returns the claimed jobs, without the claim in attempt, and a row without a job. Behind that another one, when
-- fewer were claimed than asked for:
--   is_cut, goes_on:       openings are left, and some were read
--   next_due:              microseconds until the next job is due
CREATE OR REPLACE FUNCTION forge_claim_of_limits(
    of_queue text, of_host text, of_epoch text, at_time bigint, most int, most_bytes bigint,
    known text[], workers text[], by_kind boolean, freed_names text[], freed_keys text[], queue_lock bigint,
    from_level int, from_time bigint
) RETURNS TABLE (
    is_cut boolean, goes_on boolean, wakes boolean, is_limited boolean, is_clear boolean, unknown text[],
    next_due bigint, id text, queue text, kind text, payload text, cause text, priority int, run_at bigint,
    enqueued_at bigint, timeout_us bigint, attempt int, max_attempts int, crashes int, snoozes int,
    snoozed_at bigint, rate_limit text, token bigint, cancel_requested boolean, tags text, metadata text,
    trace text, schedule text, keep_result boolean
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    is_locked boolean;
    rows int := 0;
    -- The first opening, and the first one that a claim which decides about each job leaves to the next.
    first_opening bigint;
    unread bigint;
BEGIN
    IF most > 0 THEN
        -- Each statement after this one sees all that earlier claims of the queue have written.
        -- An expression, because a statement would take longer than the lock.
        is_locked := pg_advisory_xact_lock(queue_lock) IS NOT NULL;
    END IF;
    IF most > 0 AND NOT by_kind THEN
        RETURN QUERY
        WITH RECURSIVE gate AS MATERIALIZED (
            SELECT EXISTS (SELECT FROM forge_jobs WHERE queue = of_queue AND hold = 'limit') AS is_waiting
            FROM forge_pods AS pod
            JOIN forge_slots AS slot ON slot.host_id = pod.host_id AND slot.epoch = pod.epoch
            JOIN forge_queues AS queue ON queue.name = slot.queue
            WHERE slot.queue = of_queue AND pod.host_id = of_host AND pod.epoch = of_epoch
                AND pod.lease_until > at_time AND NOT queue.paused
                AND (queue.cooldown_until IS NULL OR queue.cooldown_until <= at_time)
                AND NOT EXISTS (SELECT FROM forge_openings WHERE queue = of_queue)
        ), levels AS (
            (
                SELECT priority, run_at FROM forge_jobs
                WHERE queue = of_queue AND (priority, run_at) >= (from_level, from_time)
                    AND status IN ('pending', 'failed') AND hold IS NULL
                ORDER BY priority, run_at LIMIT 1
            )
            UNION ALL
            SELECT next.* FROM levels CROSS JOIN LATERAL (
                SELECT priority, run_at FROM forge_jobs
                WHERE queue = of_queue AND priority > levels.priority
                    AND status IN ('pending', 'failed') AND hold IS NULL
                ORDER BY priority, run_at LIMIT 1
            ) AS next
        ), met AS MATERIALIZED (
            SELECT due.*, row_number() OVER () AS place FROM (
                SELECT due.* FROM levels CROSS JOIN LATERAL (
                    SELECT id, kind, crashes, octet_length(payload) AS size, limit_name, limit_key FROM forge_jobs
                    WHERE queue = of_queue AND priority = levels.priority
                        AND run_at >= levels.run_at AND run_at <= at_time
                        AND status IN ('pending', 'failed') AND hold IS NULL
                        AND (expires_at IS NULL OR expires_at > at_time)
                    ORDER BY run_at, id
                    LIMIT most
                    FOR NO KEY UPDATE SKIP LOCKED
                ) AS due
                WHERE EXISTS (SELECT FROM gate)
                LIMIT most
            ) AS due
        ), of_keys AS MATERIALIZED (
            SELECT count(*) > 0 AS are_any, coalesce(bool_and(
                bound.share IS NULL AND bound.at_most >= wanted.jobs + (
                    SELECT count(*) FROM forge_jobs AS running
                    WHERE running.queue = of_queue AND running.limit_name = wanted.limit_name
                        AND running.limit_key = wanted.limit_key
                        AND running.status = 'in_progress' AND running.limit_name IS NOT NULL
                )
            ), true) AS are_free
            FROM (
                SELECT limit_name, limit_key, count(*) AS jobs FROM met
                WHERE limit_name IS NOT NULL GROUP BY limit_name, limit_key
            ) AS wanted
            JOIN forge_limits AS bound ON bound.queue = of_queue AND bound.name = wanted.limit_name
        ), clear AS MATERIALIZED (
            SELECT are_any FROM gate, of_keys
            WHERE are_free AND (
                SELECT coalesce(bool_and(crashes = 0 AND kind = ANY (known)) AND sum(size) <= most_bytes, true)
                    AND (count(*) = most OR from_level = -2147483648)
                FROM met
            ) AND NOT (is_waiting AND EXISTS (
                SELECT FROM (
                    SELECT limit_name AS name, limit_key AS key FROM met
                    UNION ALL
                    SELECT name, key FROM unnest(freed_names, freed_keys) AS freed (name, key)
                ) AS one
                WHERE (
                    SELECT true FROM forge_jobs AS held
                    WHERE held.queue = of_queue AND held.limit_name = one.name
                        AND held.limit_key = one.key AND held.hold = 'limit'
                    ORDER BY priority, run_at, id LIMIT 1
                )
            ))
        )
        UPDATE forge_jobs AS one
        SET status = 'in_progress', attempt = least(one.attempt, 2147483646) + 1,
            token = greatest(one.token + 1, at_time), host_id = of_host, worker_id = coalesce(workers[met.place], ''),
            claimed_at = at_time, heartbeat_at = at_time, started_at = NULL, finished_at = NULL
        FROM met
        WHERE one.id = met.id AND EXISTS (SELECT FROM clear)
        RETURNING NULL::boolean, NULL::boolean, NULL::boolean, (SELECT are_any FROM clear), NULL::boolean,
            NULL::text[], NULL::bigint,
            one.id, one.queue, one.kind, one.payload, one.cause, one.priority, one.run_at, one.enqueued_at,
            one.timeout_us, one.attempt - 1, one.max_attempts, one.crashes, one.snoozes, one.snoozed_at,
            one.rate_limit, one.token, one.cancel_requested, one.tags, one.metadata, one.trace, one.schedule,
            one.keep_result;
        GET DIAGNOSTICS rows = ROW_COUNT;
        is_clear := rows > 0;
        IF NOT is_clear THEN
            -- In an idle queue there is nothing to decide about.
            is_clear := NOT EXISTS (SELECT FROM forge_openings WHERE queue = of_queue)
                AND NOT EXISTS (SELECT FROM forge_jobs WHERE queue = of_queue AND hold = 'limit')
                AND NOT EXISTS (
                    SELECT FROM forge_jobs
                    WHERE queue = of_queue AND status IN ('pending', 'failed') AND hold IS NULL
                );
        END IF;
        IF is_clear THEN
            is_cut := false;
            goes_on := false;
            wakes := false;
            is_limited := coalesce(cardinality(freed_names), 0) > 0;
            unknown := '{}';
            RETURN NEXT;
            rows := rows + 1;
        END IF;
    END IF;
    IF rows = 0 AND most > 0 THEN
        SELECT min(id), max(id) FILTER (WHERE place > 500) INTO first_opening, unread FROM (
            SELECT id, row_number() OVER (ORDER BY id) AS place FROM (
                SELECT id FROM forge_openings WHERE queue = of_queue AND limit_name NOT IN (
                    SELECT name FROM forge_limits WHERE queue = of_queue AND share IS NOT NULL
                )
                ORDER BY id LIMIT 501
            ) AS opening
        ) AS one;
    END IF;
    IF rows = 0 THEN
        SELECT array_agg(name), array_agg(key) INTO freed_names, freed_keys
        FROM (SELECT DISTINCT name, key FROM unnest(freed_names, freed_keys) AS freed (name, key)) AS one;
        RETURN QUERY SELECT each.is_cut, each.goes_on, each.wakes, each.is_limited, false, each.unknown, NULL::bigint,
            (each.job).id, (each.job).queue, (each.job).kind, (each.job).payload, (each.job).cause,
            (each.job).priority, (each.job).run_at, (each.job).enqueued_at, (each.job).timeout_us,
            (each.job).attempt - 1, (each.job).max_attempts, (each.job).crashes, (each.job).snoozes,
            (each.job).snoozed_at, (each.job).rate_limit, (each.job).token, (each.job).cancel_requested,
            (each.job).tags, (each.job).metadata, (each.job).trace, (each.job).schedule,
            (each.job).keep_result
        FROM forge_claim_job_by_job(
            of_queue, of_host, of_epoch, at_time, most, most_bytes, known, workers, by_kind, freed_names, freed_keys
        ) AS each;
        GET DIAGNOSTICS rows = ROW_COUNT;
    END IF;
    IF rows - 1 < most THEN
        WITH RECURSIVE levels AS (
            SELECT (
                SELECT priority FROM forge_jobs
                WHERE queue = of_queue AND status IN ('pending', 'failed') AND hold IS NULL
                ORDER BY priority LIMIT 1
            ) AS priority
            UNION ALL
            SELECT (
                SELECT priority FROM forge_jobs
                WHERE queue = of_queue AND priority > levels.priority
                    AND status IN ('pending', 'failed') AND hold IS NULL
                ORDER BY priority LIMIT 1
            )
            FROM levels WHERE levels.priority IS NOT NULL
        )
        SELECT min((
            SELECT run_at FROM forge_jobs
            WHERE queue = of_queue AND priority = levels.priority AND run_at > at_time
                AND status IN ('pending', 'failed') AND hold IS NULL
            ORDER BY run_at LIMIT 1
        )) - at_time
        INTO next_due FROM levels;
        -- Each claim reads others, until one leaves none.
        is_clear := NULL;
        is_cut := unread IS NOT NULL AND NOT EXISTS (SELECT FROM forge_openings WHERE id = first_opening);
        goes_on := is_cut;
        wakes := false;
        is_limited := false;
        RETURN NEXT;
    END IF;
END $$;

-- The same for sessions without the settings of the planner that forge_claim_job_by_job has.
CREATE OR REPLACE FUNCTION forge_claim_of_limits_anywhere(
    of_queue text, of_host text, of_epoch text, at_time bigint, most int, most_bytes bigint,
    known text[], workers text[], by_kind boolean, freed_names text[], freed_keys text[], queue_lock bigint,
    from_level int, from_time bigint
) RETURNS TABLE (
    is_cut boolean, goes_on boolean, wakes boolean, is_limited boolean, is_clear boolean, unknown text[],
    next_due bigint, id text, queue text, kind text, payload text, cause text, priority int, run_at bigint,
    enqueued_at bigint, timeout_us bigint, attempt int, max_attempts int, crashes int, snoozes int,
    snoozed_at bigint, rate_limit text, token bigint, cancel_requested boolean, tags text, metadata text,
    trace text, schedule text, keep_result boolean
)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
BEGIN
    RETURN QUERY SELECT * FROM forge_claim_of_limits(
        of_queue, of_host, of_epoch, at_time, most, most_bytes, known, workers, by_kind, freed_names, freed_keys,
        queue_lock, from_level, from_time
    );
END $$;
