CREATE INDEX IF NOT EXISTS forge_jobs_held ON forge_jobs (queue, kind) WHERE hold IS NOT NULL;

CREATE INDEX IF NOT EXISTS forge_openings_by_queue ON forge_openings (queue, id);

DROP INDEX IF EXISTS forge_openings_by_key;

DROP INDEX IF EXISTS forge_openings_by_limit;

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

-- A claim that decides about each job. It comes behind forge_claim_within_limits, which takes the lock.
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
    next_turn int := 1;
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
            SELECT id FROM forge_openings WHERE queue = of_queue AND limit_name <> ALL (shared)
            ORDER BY id LIMIT 500
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
        IF next_turn <= cardinality(turn_ids) THEN
            SELECT array_agg(priority ORDER BY place), array_agg(run_at ORDER BY place)
            INTO levels_met, times_met
            FROM unnest(head) WITH ORDINALITY AS listed (id, place) JOIN forge_jobs AS one ON one.id = listed.id;
            merged := '{}';
            page := 1;
            met_turn := next_turn;
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
            UPDATE forge_jobs AS one
            SET status = 'in_progress', hold = NULL, attempt = least(one.attempt, 2147483646) + 1,
                token = greatest(one.token + 1, at_time), host_id = of_host,
                worker_id = coalesce(workers[number + mine.place], ''),
                claimed_at = at_time, heartbeat_at = at_time, started_at = NULL, finished_at = NULL
            FROM unnest(taken) WITH ORDINALITY AS mine (id, place)
            WHERE one.id = mine.id
            RETURNING NULL::boolean, NULL::boolean, NULL::boolean, NULL::boolean, NULL::text[], one;
            number := number + cardinality(taken);
            IF cardinality(turn_ids) > 0 THEN
                turn_taken := turn_taken || ARRAY(SELECT unnest(turn_ids) INTERSECT SELECT unnest(taken));
                WHILE turn_ids[next_turn] = ANY (turn_taken) LOOP
                    next_turn := next_turn + 1;
                END LOOP;
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

        EXIT WHEN is_whole OR is_cut;
        any_risk := any_risk AND NOT passed_risk;
        is_cut := true;
        EXIT WHEN cardinality(parked) >= most_parked;
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
            WHERE queue = of_queue AND forge_openings.limit_name = served.limit_name
                AND forge_openings.limit_key = served.limit_key
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

DROP FUNCTION IF EXISTS forge_openings_to_read;
