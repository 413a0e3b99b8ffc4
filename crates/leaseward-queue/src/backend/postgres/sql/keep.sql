-- Adds the counters of one who has gone to those of nobody in particular.
CREATE OR REPLACE FUNCTION fold(s bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH old AS (DELETE FROM tally WHERE shard = s RETURNING *)
    INSERT INTO tally AS t (queue, shard, pushed, done, failed, dead, cancelled, later, blocked, interrupted)
        SELECT queue, 0, pushed, done, failed, dead, cancelled, later, blocked, interrupted FROM old ORDER BY queue
        ON CONFLICT (queue, shard) DO UPDATE SET pushed = t.pushed + excluded.pushed, done = t.done + excluded.done,
            failed = t.failed + excluded.failed, dead = t.dead + excluded.dead,
            cancelled = t.cancelled + excluded.cancelled, later = t.later + excluded.later,
            blocked = t.blocked + excluded.blocked, interrupted = t.interrupted + excluded.interrupted;
END $$;

-- Ends a session that has nothing any more.
CREATE OR REPLACE FUNCTION leave(s bigint) RETURNS void LANGUAGE plpgsql @settings@ AS $$
BEGIN
    IF EXISTS (SELECT FROM lease WHERE session = s) THEN
        UPDATE session SET expires = 0, idle = false WHERE id = s;
    ELSE
        DELETE FROM session WHERE id = s;
    END IF;
    PERFORM fold(s);
END $$;

-- Moves what has come due; which queues have something new, and how long until the next.
CREATE OR REPLACE FUNCTION promote(s bigint, n int, OUT moved bigint, OUT qs int[], OUT pause bigint)
LANGUAGE plpgsql @settings@ AS $$
DECLARE
    r record;
BEGIN
    moved := 0;
    FOR r IN
        WITH pick AS MATERIALIZED (
            SELECT id FROM later WHERE due <= now_us() ORDER BY due, id LIMIT n FOR UPDATE SKIP LOCKED
        ), took AS (DELETE FROM later l USING pick p WHERE l.id = p.id RETURNING l.*),
        known AS (INSERT INTO ready (id, fence, lkey, body) SELECT id, fence, lkey, body FROM took WHERE NOT alone),
        apart AS (INSERT INTO suspect (id, fence, lkey, body) SELECT id, fence, lkey, body FROM took WHERE alone)
        SELECT (id >> 48)::int AS q, count(*) AS n FROM took GROUP BY 1 ORDER BY 1
    LOOP
        moved := moved + r.n;
        qs := qs || r.q;
        INSERT INTO tally AS t (queue, shard, later) VALUES (r.q, s, -r.n)
            ON CONFLICT (queue, shard) DO UPDATE SET later = t.later + excluded.later;
    END LOOP;
    -- Nothing at all is null: `greatest` alone would make it zero, and have whoever asks ask again at once.
    SELECT CASE WHEN min(due) IS NOT NULL THEN greatest(min(due) - now_us(), 0) END INTO pause FROM later;
END $$;

-- Takes over the leases of sessions that have ended, under fences of their own: who had them is stale from then on.
-- A lease that a transaction of the user's holds is left until that has ended.
CREATE OR REPLACE FUNCTION adopt(s bigint, last bigint, n int)
RETURNS TABLE (token bigint, queue int, ids bigint[], lkeys text[], bodies bytea[], fin bigint[], who text) LANGUAGE plpgsql @settings@ AS $$
#variable_conflict use_column
DECLARE
    t bigint := now_us();
    r record;
    next_token bigint := last;
BEGIN
    IF NOT EXISTS (SELECT FROM session x WHERE x.expires <= t) THEN RETURN; END IF;
    FOR r IN SELECT l.token AS tok, l.session AS ses, l.queue AS q, l.ids AS i, l.lkeys AS k, l.bodies AS b, l.done AS d, x.who AS w
        FROM lease l JOIN session x ON x.id = l.session
        WHERE x.expires <= t AND x.id <> s ORDER BY l.token LIMIT n FOR UPDATE OF l SKIP LOCKED
    LOOP
        next_token := greatest(t, next_token + 1, r.tok + 1);
        UPDATE lease SET token = next_token, session = s WHERE token = r.tok AND session = r.ses;
        UPDATE finished f SET token = next_token WHERE f.token = r.tok AND f.id = ANY (r.i);
        token := next_token; queue := r.q; who := r.w;
        SELECT array_agg(u.i ORDER BY u.i), array_agg(u.k ORDER BY u.i), array_agg(u.b ORDER BY u.i) INTO ids, lkeys, bodies
            FROM unnest(r.i, coalesce(r.k, array_fill(NULL::text, ARRAY[cardinality(r.i)])), r.b) u(i, k, b)
            WHERE NOT u.i = ANY (r.d);
        IF ids IS NULL THEN
            DELETE FROM lease WHERE token = next_token AND session = s;
            CONTINUE;
        END IF;
        fin := ARRAY(SELECT f.id FROM finished f WHERE f.token = next_token AND f.id = ANY (r.i));
        RETURN NEXT;
    END LOOP;
    -- Without leases they are over.
    FOR r IN DELETE FROM session x WHERE x.expires <= t AND x.id <> s AND NOT EXISTS (SELECT FROM lease l WHERE l.session = x.id)
        RETURNING x.id
    LOOP
        PERFORM fold(r.id);
    END LOOP;
END $$;

-- Forgets what nobody wants any more; whether there may be more of it.
CREATE OR REPLACE FUNCTION tidy(n int, dead_before bigint) RETURNS boolean LANGUAGE plpgsql @settings@ AS $$
DECLARE
    t bigint := now_us();
    gone bigint;
    more boolean := false;
    r record;
BEGIN
    DELETE FROM kept WHERE id IN (SELECT id FROM kept WHERE until <= t ORDER BY until LIMIT n);
    GET DIAGNOSTICS gone = ROW_COUNT; more := more OR gone >= n;
    DELETE FROM uniq WHERE (queue, key) IN (SELECT queue, key FROM uniq WHERE until <= t LIMIT n FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS gone = ROW_COUNT; more := more OR gone >= n;
    DELETE FROM dead WHERE id IN (SELECT id FROM dead WHERE at <= dead_before LIMIT n FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS gone = ROW_COUNT; more := more OR gone >= n;
    -- Counters of transactions of the user's, and of sessions that left without a word.
    FOR r IN SELECT DISTINCT shard FROM tally y WHERE shard < 0
        OR (shard > 0 AND NOT EXISTS (SELECT FROM session x WHERE x.id = y.shard)) LIMIT n
    LOOP
        PERFORM fold(r.shard);
    END LOOP;
    -- A claim may have been made in the moment in which its session ended.
    INSERT INTO session (id, who, expires, idle)
        SELECT DISTINCT l.session, 'nobody', 0, false FROM lease l WHERE NOT EXISTS (SELECT FROM session x WHERE x.id = l.session)
        ON CONFLICT (id) DO NOTHING;
    RETURN more;
END $$;

CREATE OR REPLACE FUNCTION fire(s bigint, what text, at bigint, slots bigint[], bodies bytea[], dues bigint[], lkeys text[],
    ukeys text[], windows bigint[], OUT fired boolean, OUT sleeps boolean) LANGUAGE plpgsql @settings@ AS $$
BEGIN
    INSERT INTO cron AS c (name, last) VALUES (what, at) ON CONFLICT (name) DO UPDATE SET last = excluded.last WHERE c.last < excluded.last;
    fired := FOUND;
    IF fired AND cardinality(slots) > 0 THEN
        SELECT p.sleeps INTO sleeps FROM push_any(s, slots, bodies, dues, lkeys, ukeys, windows, false) p;
    END IF;
    sleeps := coalesce(sleeps, false);
END $$;

-- Notes how far a job is, if the lease is still the job's own.
CREATE OR REPLACE FUNCTION note(s bigint, t bigint, i bigint, what bytea) RETURNS boolean LANGUAGE plpgsql @settings@ AS $$
BEGIN
    PERFORM FROM lease WHERE token = t AND session = s AND i = ANY (ids) AND NOT i = ANY (done) FOR KEY SHARE;
    IF NOT FOUND THEN RETURN false; END IF;
    INSERT INTO progress (id, fence, at, value) VALUES (i, t, now_us(), what)
        ON CONFLICT (id) DO UPDATE SET fence = excluded.fence, at = excluded.at, value = excluded.value;
    RETURN true;
END $$;
