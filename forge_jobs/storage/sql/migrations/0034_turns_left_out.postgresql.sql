-- works-from: 1
-- A claim left a job out that may kill the process, where others came before its turn, and met those behind it a
-- second time: jobs that the claim had taken already went on hold while they ran, or were claimed twice.
-- The claims come back in the order in which they were taken. Before, a pod with claims ahead started them in the
-- order of the queue: all jobs of the key with the oldest ones first.

-- A claim that decides about each job. It comes behind forge_claim_of_limits, which takes the lock.
CREATE OR REPLACE FUNCTION forge_claim_job_by_job(
    of_queue text, of_host text, of_epoch text, at_time bigint, most int, most_bytes bigint,
    known text[], workers text[], by_kind boolean, freed_names text[], freed_keys text[]
) RETURNS TABLE (
    is_cut boolean, goes_on boolean, wakes boolean, is_limited boolean, unknown text[], job forge_jobs
)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    no_bound CONSTANT bigint := 1::bigint << 62;
    most_looks CONSTANT int := 10;
    most_parked CONSTANT int := 1000;
    most_locked CONSTANT int := 4000;
    -- Keys to open, and those that were opened or put on hold. Each is a pair of arrays.
    names text[] := coalesce(freed_names, '{}');
    keys text[] := coalesce(freed_keys, '{}');
    seen_names text[] := '{}';
    seen_keys text[] := '{}';
    openings bigint[];
    readied text[] := '{}';
    parked text[] := '{}';
    head text[];
    taken text[];
    beyond text[];
    level int;
    page int;
    number int := 0;
    met_size bigint;
    any_risk boolean := true;
    passed_risk boolean;
    is_free boolean;
    is_whole boolean;
    is_waiting boolean;
    has_limits boolean;
    left_open int := 0;
    -- Limits whose keys take turns, the jobs on hold whose turn it is, in their order, and those taken.
    shared text[];
    turn_ids text[] := '{}';
    turn_levels int[];
    turn_times bigint[];
    are_more_turns boolean := false;
    are_unmet boolean := false;
    turns_wake boolean := false;
    met_turn int;
    turn_taken text[] := '{}';
    merged text[];
    levels_met int[];
    times_met bigint[];
BEGIN
    is_cut := false;
    goes_on := false;
    wakes := false;
    is_limited := cardinality(names) > 0;
    unknown := '{}';
    IF most < 1 OR NOT EXISTS (
        SELECT FROM forge_pods AS pod
        JOIN forge_slots AS slot ON slot.host_id = pod.host_id AND slot.epoch = pod.epoch
        JOIN forge_queues AS queue ON queue.name = slot.queue
        WHERE slot.queue = of_queue AND pod.host_id = of_host AND pod.epoch = of_epoch
            AND pod.lease_until > at_time AND NOT queue.paused
            AND (queue.cooldown_until IS NULL OR queue.cooldown_until <= at_time)
    ) THEN
        -- The next claim sees what has ended.
        INSERT INTO forge_openings (queue, limit_name, limit_key, since)
        SELECT of_queue, name, key, at_time FROM unnest(names, keys) AS freed (name, key);
        wakes := FOUND;
        RETURN NEXT;
        RETURN;
    END IF;

    shared := ARRAY(SELECT name FROM forge_limits WHERE queue = of_queue AND share IS NOT NULL);
    IF cardinality(shared) > 0 THEN
        is_limited := true;
        INSERT INTO forge_openings (queue, limit_name, limit_key, since)
        SELECT of_queue, name, key, at_time FROM unnest(names, keys) AS freed (name, key)
        WHERE name = ANY (shared) AND (
            SELECT true FROM forge_jobs
            WHERE queue = of_queue AND limit_name = name AND limit_key = key AND hold = 'limit'
            ORDER BY priority, run_at, id LIMIT 1
        );
        SELECT coalesce(array_agg(name), '{}'), coalesce(array_agg(key), '{}') INTO names, keys
        FROM unnest(names, keys) AS freed (name, key) WHERE name <> ALL (shared);
        SELECT * INTO turn_ids, turn_levels, turn_times, are_more_turns, are_unmet, turns_wake
        FROM forge_take_turns(of_queue, at_time, most, known, cardinality(workers), shared);
        IF are_unmet THEN
            INSERT INTO forge_openings (queue, limit_name, limit_key, since)
            SELECT of_queue, name, key, at_time FROM unnest(names, keys) AS freed (name, key);
            is_cut := true;
            goes_on := true;
            wakes := true;
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;

    WITH gone AS (
        DELETE FROM forge_openings WHERE id IN (
            SELECT id FROM forge_openings_to_read(of_queue, 500)
        )
        RETURNING limit_name, limit_key
    )
    SELECT names || array_agg(limit_name), keys || array_agg(limit_key), is_limited OR count(*) > 0
    INTO names, keys, is_limited FROM gone;
    is_waiting := EXISTS (SELECT FROM forge_jobs WHERE queue = of_queue AND hold = 'limit');
    IF NOT is_waiting THEN
        names := '{}';
        keys := '{}';
    END IF;

    FOR look IN 1..most_looks LOOP
        is_cut := number < most;
        EXIT WHEN NOT is_cut;

        -- Make the first jobs on hold ready, of each key as many as there is room.
        IF cardinality(names) > 0 THEN
            WITH room AS MATERIALIZED (
                SELECT given.name, given.key, coalesce(bound.at_most, no_bound) - (
                        SELECT count(*) FROM forge_jobs
                        WHERE queue = of_queue AND limit_name = given.name AND limit_key = given.key
                            AND status = 'in_progress' AND limit_name IS NOT NULL
                    ) AS free
                FROM (SELECT DISTINCT name, key FROM unnest(names, keys) AS listed (name, key)) AS given
                LEFT JOIN forge_limits AS bound ON bound.queue = of_queue AND bound.name = given.name
            ), next AS MATERIALIZED (
                SELECT first.id FROM room CROSS JOIN LATERAL (
                    SELECT id FROM forge_jobs
                    WHERE queue = of_queue AND limit_name = room.name AND limit_key = room.key
                        AND hold = 'limit' AND (expires_at IS NULL OR expires_at > at_time)
                    ORDER BY priority, run_at, id
                    LIMIT greatest(0, least(room.free, most - number))
                    FOR NO KEY UPDATE SKIP LOCKED
                ) AS first
            ), opened AS (
                UPDATE forge_jobs SET hold = NULL FROM next WHERE forge_jobs.id = next.id
                RETURNING forge_jobs.id
            )
            SELECT readied || array_agg(id) INTO readied FROM opened;
            seen_names := seen_names || names;
            seen_keys := seen_keys || keys;
        END IF;

        -- The first due jobs, in the order of the queue.
        IF NOT by_kind THEN
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
            SELECT ARRAY(
                SELECT due.id FROM levels CROSS JOIN LATERAL (
                    SELECT id FROM forge_jobs
                    WHERE queue = of_queue AND priority = levels.priority AND run_at <= at_time
                        AND status IN ('pending', 'failed') AND hold IS NULL
                        AND (expires_at IS NULL OR expires_at > at_time) AND (any_risk OR crashes = 0)
                    ORDER BY run_at, id
                    LIMIT most - number
                    FOR NO KEY UPDATE SKIP LOCKED
                ) AS due
                LIMIT most - number
            ) INTO head;
        ELSE
            -- A second time where the first jobs of a kind are locked, which is rare.
            FOREACH page IN ARRAY ARRAY[most - number + 100, most - number + most_locked] LOOP
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
                SELECT ARRAY(
                    SELECT due.id FROM levels CROSS JOIN LATERAL (
                        SELECT mine.id FROM (
                            SELECT first.id FROM unnest(known) AS one (kind) CROSS JOIN LATERAL (
                                SELECT id, run_at FROM forge_jobs
                                WHERE queue = of_queue AND kind = one.kind
                                    AND priority = levels.priority AND run_at <= at_time
                                    AND status IN ('pending', 'failed') AND hold IS NULL
                                    AND (expires_at IS NULL OR expires_at > at_time)
                                    AND (any_risk OR crashes = 0)
                                ORDER BY run_at, id
                                LIMIT page
                            ) AS first
                            ORDER BY first.run_at, first.id
                        ) AS listed CROSS JOIN LATERAL (
                            SELECT id FROM forge_jobs
                            WHERE id = listed.id AND status IN ('pending', 'failed')
                                AND coalesce(hold, '') = '' AND run_at + 0 <= at_time
                            FOR NO KEY UPDATE SKIP LOCKED
                        ) AS mine
                        LIMIT most - number
                    ) AS due
                    LIMIT most - number
                ) INTO head;
                EXIT WHEN cardinality(head) >= most - number;
            END LOOP;
        END IF;
        is_whole := cardinality(head) < most - number;

        -- Those whose turn it is among them, by priority, and by the due time or the turn.
        IF cardinality(turn_ids) > 0 THEN
            SELECT array_agg(priority ORDER BY place), array_agg(run_at ORDER BY place)
            INTO levels_met, times_met
            FROM unnest(head) WITH ORDINALITY AS listed (id, place) JOIN forge_jobs AS one ON one.id = listed.id;
            merged := '{}';
            page := 1;
            met_turn := 1;
            WHILE cardinality(merged) < most - number LOOP
                EXIT WHEN met_turn > cardinality(turn_ids) AND page > cardinality(head);
                IF met_turn <= cardinality(turn_ids) AND (
                    page > cardinality(head)
                    OR (turn_levels[met_turn], turn_times[met_turn]) <= (levels_met[page], times_met[page])
                ) THEN
                    merged := merged || turn_ids[met_turn];
                    met_turn := met_turn + 1;
                ELSE
                    merged := merged || head[page];
                    page := page + 1;
                END IF;
            END LOOP;
            head := merged;
        END IF;

        -- turn: the place of a job among those of its key
        -- room: how many of the key may start, known at the first of them
        WITH met AS (
            SELECT place, one.id, one.kind, one.priority, one.limit_name, one.limit_key,
                CASE WHEN bound.share IS NULL THEN bound.at_most ELSE 0 END AS at_most, octet_length(one.payload) AS size,
                one.crashes > 0 AND place > cardinality(workers) - number AS is_risk
            FROM unnest(head) WITH ORDINALITY AS listed (id, place)
            JOIN forge_jobs AS one ON one.id = listed.id
            LEFT JOIN forge_limits AS bound
                ON bound.queue = of_queue AND bound.name = one.limit_name AND one.hold IS NULL
        ), in_turn AS (
            SELECT *, row_number() OVER key AS turn FROM met
            WINDOW key AS (
                PARTITION BY limit_name, limit_key, is_risk, at_most IS NULL ORDER BY place
            )
        ), looked_up AS MATERIALIZED (
            SELECT *,
                CASE WHEN turn = 1 THEN at_most - (
                    SELECT count(*) FROM forge_jobs AS running
                    WHERE running.queue = of_queue AND running.limit_name = in_turn.limit_name
                        AND running.limit_key = in_turn.limit_key
                        AND running.status = 'in_progress' AND running.limit_name IS NOT NULL
                ) END AS found_room,
                CASE WHEN turn = 1 AND is_waiting AND at_most IS NOT NULL THEN (
                    SELECT true FROM forge_jobs AS held
                    WHERE held.queue = of_queue AND held.limit_name = in_turn.limit_name
                        AND held.limit_key = in_turn.limit_key AND held.hold = 'limit'
                    ORDER BY priority, run_at, id LIMIT 1
                ) END AS found_waiting
            FROM in_turn
        ), decided AS (
            SELECT *, min(found_room) OVER key AS room, at_most IS NOT NULL AND turn > min(found_room) OVER key AS is_beyond
            FROM looked_up
            WINDOW key AS (PARTITION BY limit_name, limit_key, is_risk, at_most IS NULL)
        ), sized AS (
            SELECT *, sum(size) FILTER (WHERE NOT is_beyond AND NOT is_risk) OVER (ORDER BY place) AS total
            FROM decided
        )
        SELECT coalesce(array_agg(limit_name) FILTER (WHERE opens), '{}'),
            coalesce(array_agg(limit_key) FILTER (WHERE opens), '{}'),
            coalesce(array_agg(id ORDER BY place) FILTER (WHERE fits), '{}'),
            coalesce(array_agg(id ORDER BY place) FILTER (WHERE is_beyond AND NOT is_risk), '{}'),
            min(priority) FILTER (WHERE is_beyond AND NOT is_risk),
            coalesce(sum(size) FILTER (WHERE fits), 0),
            coalesce(bool_or(NOT fits AND NOT is_beyond AND NOT is_risk), false),
            coalesce(bool_or(is_risk), false),
            coalesce(bool_or(at_most IS NOT NULL), false),
            unknown || array_agg(DISTINCT kind) FILTER (WHERE kind <> ALL (known))
        INTO names, keys, taken, beyond, level, met_size, is_cut, passed_risk, has_limits, unknown
        FROM (
            SELECT *,
                NOT is_beyond AND NOT is_risk
                    AND (total <= most_bytes OR number = 0 AND total = size) AS fits,
                found_waiting AND room > 0 AND NOT is_risk AND (limit_name, limit_key) NOT IN (
                    SELECT name, key FROM unnest(seen_names, seen_keys) AS seen (name, key)
                ) AS opens
            FROM sized
        ) AS one;
        is_limited := is_limited OR has_limits;

        -- Look again: by kind, or once jobs on hold are ready, which may come before those that were met.
        IF cardinality(names) > 0 OR (NOT by_kind AND cardinality(unknown) > 0) THEN
            by_kind := by_kind OR cardinality(unknown) > 0;
            is_cut := true;
            CONTINUE;
        END IF;

        IF cardinality(taken) > 0 THEN
            RETURN QUERY
            WITH changed AS (
                UPDATE forge_jobs AS one
                SET status = 'in_progress', hold = NULL, attempt = least(one.attempt, 2147483646) + 1,
                    token = greatest(one.token + 1, at_time), host_id = of_host,
                    worker_id = coalesce(workers[number + mine.place], ''),
                    claimed_at = at_time, heartbeat_at = at_time, started_at = NULL, finished_at = NULL
                FROM unnest(taken) WITH ORDINALITY AS mine (id, place)
                WHERE one.id = mine.id
                RETURNING mine.place, one
            )
            SELECT NULL::boolean, NULL::boolean, NULL::boolean, NULL::boolean, NULL::text[], changed.one
            FROM changed ORDER BY place;
            number := number + cardinality(taken);
            IF cardinality(turn_ids) > 0 THEN
                turn_taken := turn_taken || ARRAY(SELECT unnest(turn_ids) INTERSECT SELECT unnest(taken));
            END IF;
            most_bytes := most_bytes - met_size;
        END IF;

        -- Put jobs of full keys on hold, and others of such keys behind them.
        IF cardinality(beyond) > 0 THEN
            WITH page AS MATERIALIZED (
                SELECT id, limit_name, limit_key, run_at FROM forge_jobs
                WHERE queue = of_queue AND priority = level AND run_at <= at_time
                    AND status IN ('pending', 'failed') AND hold IS NULL
                    AND (expires_at IS NULL OR expires_at > at_time)
                ORDER BY run_at, id
                LIMIT most_parked
                FOR NO KEY UPDATE SKIP LOCKED
            ), in_turn AS (
                SELECT page.*, bound.at_most, row_number() OVER key AS turn
                FROM page JOIN forge_limits AS bound
                    ON bound.queue = of_queue AND bound.name = page.limit_name AND bound.share IS NULL
                WINDOW key AS (PARTITION BY limit_name, limit_key ORDER BY run_at, id)
            ), decided AS (
                SELECT id, turn > min(CASE WHEN turn = 1 THEN at_most - (
                    SELECT count(*) FROM forge_jobs AS running
                    WHERE running.queue = of_queue AND running.limit_name = in_turn.limit_name
                        AND running.limit_key = in_turn.limit_key
                        AND running.status = 'in_progress' AND running.limit_name IS NOT NULL
                ) END) OVER (PARTITION BY limit_name, limit_key) AS is_beyond
                FROM in_turn
            ), held AS (
                UPDATE forge_jobs AS one SET hold = 'limit'
                FROM (
                    SELECT unnest(beyond) UNION SELECT id FROM decided WHERE is_beyond
                ) AS full_ones (id)
                WHERE one.id = full_ones.id
                RETURNING one.id, one.limit_name, one.limit_key
            )
            SELECT parked || array_agg(id), seen_names || array_agg(limit_name), seen_keys || array_agg(limit_key)
            INTO parked, seen_names, seen_keys FROM held;
            is_waiting := true;
        END IF;

        -- A job that may kill the process is met again while a worker is free: jobs before it have gone on hold.
        is_free := number < cardinality(workers);
        EXIT WHEN is_cut OR is_whole AND NOT (passed_risk AND is_free);
        any_risk := any_risk AND (is_free OR NOT passed_risk);
        is_cut := true;
        EXIT WHEN cardinality(parked) >= most_parked;
        IF cardinality(turn_ids) > 0 THEN
            -- The turns that are left. Without a free worker those are not met again either that were left out.
            SELECT coalesce(array_agg(id ORDER BY place), '{}'), array_agg(priority ORDER BY place),
                array_agg(since ORDER BY place)
            INTO turn_ids, turn_levels, turn_times
            FROM unnest(turn_ids, turn_levels, turn_times) WITH ORDINALITY AS one (id, priority, since, place)
            WHERE id <> ALL (CASE WHEN is_free THEN turn_taken ELSE turn_taken || head END);
        END IF;
    END LOOP;

    -- Leave an opening for each key that still has room and jobs on hold.
    IF cardinality(seen_names) > 0 THEN
        INSERT INTO forge_openings (queue, limit_name, limit_key, since)
        SELECT of_queue, given.name, given.key, at_time
        FROM (
            SELECT DISTINCT name, key FROM unnest(seen_names, seen_keys) AS seen (name, key)
        ) AS given
        LEFT JOIN forge_limits AS bound ON bound.queue = of_queue AND bound.name = given.name
        WHERE CASE WHEN coalesce(bound.at_most, no_bound) > (
            SELECT count(*) FROM forge_jobs
            WHERE queue = of_queue AND limit_name = given.name AND limit_key = given.key
                AND status = 'in_progress' AND limit_name IS NOT NULL
        ) THEN (
            SELECT true FROM forge_jobs
            WHERE queue = of_queue AND limit_name = given.name AND limit_key = given.key
                AND hold = 'limit' AND (expires_at IS NULL OR expires_at > at_time)
            ORDER BY priority, run_at, id LIMIT 1
        ) END;
        GET DIAGNOSTICS left_open = ROW_COUNT;
    END IF;
    IF cardinality(turn_taken) > 0 THEN
        WITH served AS MATERIALIZED (
            SELECT DISTINCT limit_name, limit_key FROM forge_jobs WHERE id = ANY (turn_taken)
        ), gone AS (
            DELETE FROM forge_openings USING served
            WHERE queue || E'\n' || forge_openings.limit_name || E'\n' || forge_openings.limit_key
                = of_queue || E'\n' || served.limit_name || E'\n' || served.limit_key
        )
        INSERT INTO forge_openings (queue, limit_name, limit_key, since)
        SELECT of_queue, served.limit_name, served.limit_key, at_time
        FROM served JOIN forge_limits AS bound ON bound.queue = of_queue AND bound.name = served.limit_name
        WHERE bound.at_most > (
            SELECT count(*) FROM forge_jobs AS running
            WHERE running.queue = of_queue AND running.limit_name = served.limit_name
                AND running.limit_key = served.limit_key
                AND running.status = 'in_progress' AND running.limit_name IS NOT NULL
        ) AND (
            SELECT true FROM forge_jobs AS held
            WHERE held.queue = of_queue AND held.limit_name = served.limit_name
                AND held.limit_key = served.limit_key AND held.hold = 'limit'
            ORDER BY priority, run_at, id LIMIT 1
        );
    END IF;
    wakes := turns_wake;
    IF cardinality(readied) > 0 THEN
        wakes := wakes OR left_open > 0 OR EXISTS (
            SELECT FROM forge_jobs
            WHERE id = ANY (readied) AND status IN ('pending', 'failed') AND hold IS NULL
        );
    END IF;
    goes_on := is_cut AND cardinality(parked) > 0;
    is_cut := is_cut OR (are_more_turns AND number < most);
    IF by_kind THEN
        WITH RECURSIVE used AS (
            SELECT (
                SELECT kind FROM forge_jobs
                WHERE queue = of_queue AND status IN ('pending', 'failed') AND hold IS NULL
                ORDER BY kind LIMIT 1
            ) AS kind
            UNION ALL
            SELECT (
                SELECT kind FROM forge_jobs
                WHERE queue = of_queue AND kind > used.kind
                    AND status IN ('pending', 'failed') AND hold IS NULL
                ORDER BY kind LIMIT 1
            )
            FROM used WHERE used.kind IS NOT NULL
        )
        SELECT ARRAY(SELECT kind FROM used WHERE kind IS NOT NULL AND kind <> ALL (known)) INTO unknown;
    END IF;
    job := NULL;
    RETURN NEXT;
END $$;
