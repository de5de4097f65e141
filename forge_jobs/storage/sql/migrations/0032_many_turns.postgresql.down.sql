DROP FUNCTION IF EXISTS forge_claim_of_limits_anywhere;

DROP FUNCTION IF EXISTS forge_claim_of_limits;

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
    most_turns CONSTANT int := 200;
    most_read CONSTANT int := 2000;
    names text[];
    keys text[];
    before int;
    size int := most;
    met int;
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
        ARRAY(SELECT id FROM listed WHERE kind <> ALL (known)),
        ARRAY(
            SELECT unnest(rows[2:]) FROM room
            UNION ALL
            SELECT rows[1] FROM room WHERE at_most <= used OR NOT EXISTS (
                SELECT FROM listed
                WHERE listed.limit_name = room.limit_name AND listed.limit_key = room.limit_key
            )
        )
    INTO ids, is_more, strange, closed FROM ranked;
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
    is_more := is_more OR cardinality(ids) > most;
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
