-- Rows are taken in one order everywhere, so that statements do not wait for each other in a circle: leases, queues, keys,
-- and counters last; each of them in the order of their names.

-- Plainly done. `ended`: leases of which nothing is left, and how many jobs of each are done now. What was written down
-- before, and its answer lost, may come again: a job counts once.
CREATE OR REPLACE FUNCTION finish(s bigint, ended bigint[], ended_n bigint[], parts bigint[], part_ids bigint[],
    OUT ours bigint[], OUT busy bigint[], OUT freed int[]) LANGUAGE plpgsql @settings@ AS $$
DECLARE
    r record;
BEGIN
    IF cardinality(parts) > 0 THEN
        -- The first one may still be at work when its answer is given up and this one comes. What it writes down is seen by
        -- statements that begin after it has ended, and by no part of one that began before.
        PERFORM FROM lease WHERE session = s AND token = ANY (ended || parts) ORDER BY token FOR NO KEY UPDATE;
    END IF;
    FOR r IN
        WITH gone AS (
            DELETE FROM lease l USING unnest(ended, ended_n) e(t, n) WHERE l.token = e.t AND l.session = s
            RETURNING l.token, l.queue, l.counted, least(e.n, cardinality(l.ids) - cardinality(l.done)) AS n
        ), went AS (
            UPDATE lease l SET done = l.done || p.ids
            FROM (SELECT u.t, array_agg(u.i) AS ids FROM unnest(parts, part_ids) u(t, i)
                JOIN lease x ON x.token = u.t AND x.session = s WHERE NOT u.i = ANY (x.done) GROUP BY u.t) p
            WHERE l.token = p.t AND l.session = s
            RETURNING l.token, l.queue, l.counted, cardinality(p.ids)::bigint AS n
        ), hit AS (SELECT * FROM gone UNION ALL SELECT * FROM went)
        SELECT queue, array_agg(token) AS tokens, sum(n)::bigint AS n, (sum(n) FILTER (WHERE counted))::int AS c
        FROM hit GROUP BY queue ORDER BY queue
    LOOP
        ours := ours || r.tokens;
        IF r.c > 0 THEN
            UPDATE queues SET running = greatest(running - r.c, 0) WHERE no = r.queue;
            freed := freed || r.queue;
        END IF;
        INSERT INTO tally AS t (queue, shard, done) VALUES (r.queue, s, r.n)
            ON CONFLICT (queue, shard) DO UPDATE SET done = t.done + excluded.done;
    END LOOP;
END $$;

-- Whatever else may become of jobs. Kinds: 0 done, 1 done and kept, 2 cancelled, 3 failed, 4 failed with its worker,
-- 5 given back, 6 dead, 7 cancelled and kept, 8 snoozed, 9 interrupted. For 1 and 7 `dues` says for how long, below zero.
-- A lease that a transaction of the user's holds is busy, and left alone.
CREATE OR REPLACE FUNCTION settle(s bigint, ended bigint[], tokens bigint[], ids bigint[], kinds smallint[],
    dues bigint[], bodies bytea[], lkeys text[], ukeys text[], results bytea[], noted boolean[],
    OUT ours bigint[], OUT busy bigint[], OUT freed int[]) LANGUAGE plpgsql @settings@ AS $$
DECLARE
    t bigint := now_us();
    counted_tokens bigint[];
    r record;
    qs int[];
    n_done bigint[];
    n_failed bigint[];
    n_dead bigint[];
    n_cancelled bigint[];
    n_later bigint[];
    n_interrupted bigint[];
    moved bigint;
    -- By queue.
    n_moved bigint[] := '{}';
BEGIN
    SELECT array_agg(l.token), array_agg(l.token) FILTER (WHERE l.counted) INTO ours, counted_tokens FROM (
        SELECT token, counted FROM lease WHERE session = s AND token = ANY (tokens) ORDER BY token FOR UPDATE SKIP LOCKED
    ) l;
    busy := ARRAY(SELECT token FROM lease WHERE session = s AND token = ANY (tokens) AND NOT token = ANY (coalesce(ours, '{}')));
    IF ours IS NULL THEN RETURN; END IF;
    -- What was written down before, and its answer lost, is not written down again: another may have the job by now.
    IF EXISTS (SELECT FROM lease x WHERE x.session = s AND x.token = ANY (ours) AND x.done && settle.ids) THEN
        SELECT array_agg(u.t), array_agg(u.i), array_agg(u.k), array_agg(u.d), array_agg(u.b), array_agg(u.l), array_agg(u.uk),
                array_agg(u.r), array_agg(u.nt)
            INTO tokens, ids, kinds, dues, bodies, lkeys, ukeys, results, noted
            FROM unnest(settle.tokens, settle.ids, settle.kinds, settle.dues, settle.bodies, settle.lkeys, settle.ukeys,
                settle.results, settle.noted) u(t, i, k, d, b, l, uk, r, nt)
            JOIN lease x ON x.token = u.t AND x.session = s WHERE x.token = ANY (ours) AND NOT u.i = ANY (x.done);
    END IF;
    WITH e AS MATERIALIZED (
        SELECT u.*, (u.i >> 48)::int AS q,
            CASE WHEN u.k > 1 AND EXISTS (SELECT FROM finished f WHERE f.token = u.t AND f.id = u.i) THEN 0 ELSE u.k END AS kind
        FROM unnest(tokens, ids, kinds, dues, bodies, lkeys, ukeys, results, noted) u(t, i, k, d, b, l, uk, r, nt)
        WHERE u.t = ANY (ours)
    ), gone AS (
        DELETE FROM lease WHERE session = s AND token = ANY (ours) AND token = ANY (ended)
    ), went AS (
        UPDATE lease l SET done = l.done || p.ids
        FROM (SELECT e.t, array_agg(e.i) AS ids FROM e WHERE NOT e.t = ANY (ended) GROUP BY e.t) p
        WHERE l.token = p.t AND l.session = s
    ), fin AS (
        DELETE FROM finished f USING e WHERE f.token = e.t AND f.id = e.i
    ), lat AS (
        INSERT INTO later (id, due, alone, fence, lkey, body)
        SELECT i, CASE WHEN d < 0 THEN now_us() - d ELSE d END, kind = 4, e.t, l, b FROM e WHERE kind IN (3, 4, 8, 9)
    ), rdy AS (
        INSERT INTO ready (id, fence, lkey, body) SELECT i, e.t, l, b FROM e WHERE kind = 5
    ), ded AS (
        INSERT INTO dead (id, at, fence, lkey, body) SELECT i, now_us(), e.t, l, b FROM e WHERE kind = 6
        ON CONFLICT (id) DO UPDATE SET at = excluded.at, fence = excluded.fence, body = excluded.body
    ), kep AS (
        INSERT INTO kept (id, at, until, state, fence, body, result)
        SELECT i, now_us(), now_us() - d, kind, e.t, b, e.r FROM e WHERE kind IN (1, 7)
        ON CONFLICT (id) DO UPDATE SET at = excluded.at, until = excluded.until, state = excluded.state,
            fence = excluded.fence, body = excluded.body, result = excluded.result
    ), unq AS (
        DELETE FROM uniq u USING e WHERE u.queue = e.q AND u.key = e.uk AND u.job = e.i AND kind IN (0, 1, 2, 6, 7)
    ), prg AS (
        DELETE FROM progress p USING e WHERE e.nt AND p.id = e.i AND kind IN (0, 1, 2, 7)
    )
    SELECT array_agg(c.q), array_agg(c.done), array_agg(c.failed), array_agg(c.dead), array_agg(c.cancelled), array_agg(c.later),
            array_agg(c.interrupted)
        INTO qs, n_done, n_failed, n_dead, n_cancelled, n_later, n_interrupted
        FROM (SELECT q, count(*) FILTER (WHERE kind < 2) AS done, count(*) FILTER (WHERE kind IN (3, 4, 6)) AS failed,
            count(*) FILTER (WHERE kind = 6) AS dead, count(*) FILTER (WHERE kind IN (2, 7)) AS cancelled,
            count(*) FILTER (WHERE kind IN (3, 4, 8, 9)) AS later, count(*) FILTER (WHERE kind = 9) AS interrupted FROM e GROUP BY q) c;
    FOR r IN SELECT (u.i >> 48)::int AS q, count(*)::int AS n FROM unnest(tokens, ids) u(t, i)
        WHERE u.t = ANY (counted_tokens) GROUP BY 1 ORDER BY 1
    LOOP
        UPDATE queues SET running = greatest(running - r.n, 0) WHERE no = r.q;
        freed := freed || r.q;
    END LOOP;
    FOR r IN SELECT (u.i >> 48)::int AS q, u.l, count(*)::int AS n FROM unnest(tokens, ids, lkeys) u(t, i, l)
        WHERE u.t = ANY (ours) AND u.l IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2
    LOOP
        moved := release_key(r.q, r.l, r.n);
        IF moved > 0 THEN
            freed := freed || r.q;
            n_moved[r.q] := coalesce(n_moved[r.q], 0) + moved;
        END IF;
    END LOOP;
    INSERT INTO tally AS y (queue, shard, done, failed, dead, cancelled, later, interrupted, blocked)
        SELECT u.q, s, u.d, u.f, u.x, u.c, u.l, u.i, -coalesce(n_moved[u.q], 0)
        FROM unnest(qs, n_done, n_failed, n_dead, n_cancelled, n_later, n_interrupted) u(q, d, f, x, c, l, i) ORDER BY u.q
        ON CONFLICT (queue, shard) DO UPDATE SET done = y.done + excluded.done, failed = y.failed + excluded.failed,
            dead = y.dead + excluded.dead, cancelled = y.cancelled + excluded.cancelled, later = y.later + excluded.later,
            interrupted = y.interrupted + excluded.interrupted, blocked = y.blocked + excluded.blocked;
END $$;

-- Gives places of a key back, and has as many of those that were put aside try again; how many there were.
CREATE OR REPLACE FUNCTION release_key(q int, k text, n int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    moved bigint;
BEGIN
    UPDATE keys SET running = greatest(running - n, 0) WHERE queue = q AND lkey = k;
    WITH up AS (
        DELETE FROM blocked WHERE id IN (SELECT id FROM blocked WHERE queue = q AND lkey = k ORDER BY id LIMIT n)
        RETURNING id, fence, lkey, body
    ), put AS (INSERT INTO ready (id, fence, lkey, body) SELECT * FROM up RETURNING 1)
    SELECT count(*) INTO moved FROM put;
    DELETE FROM keys WHERE queue = q AND lkey = k AND running = 0
        AND NOT EXISTS (SELECT FROM blocked WHERE queue = q AND lkey = k);
    RETURN moved;
END $$;

-- Completes one job in a transaction of the user's: the lease cannot be taken from it before that ends.
CREATE OR REPLACE FUNCTION complete_in(s bigint, t bigint, i bigint) RETURNS boolean LANGUAGE plpgsql @settings@ AS $$
BEGIN
    PERFORM FROM lease WHERE token = t AND session = s AND i = ANY (ids) AND NOT i = ANY (done) FOR KEY SHARE;
    IF NOT FOUND THEN RETURN false; END IF;
    INSERT INTO finished (token, id) VALUES (t, i) ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;
