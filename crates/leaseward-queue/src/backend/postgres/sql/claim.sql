-- Claims up to n jobs, ranges in their order. `state`: 0 as many as there were, 1 paused, 2 at the queue's limit,
-- 3 some were put aside because their key is at its limit, 4 the session has ended. `token` is null if nothing was claimed.
CREATE OR REPLACE FUNCTION claim(s bigint, last bigint, q int, lows bigint[], highs bigint[], n int, alone boolean,
    after boolean, OUT state smallint, OUT token bigint, OUT ids bigint[], OUT lkeys text[], OUT bodies bytea[])
LANGUAGE plpgsql @settings@ AS $$
DECLARE
    setup queues%ROWTYPE;
    fences bigint[];
    keyed bigint;
    newest bigint;
BEGIN
    state := 0;
    -- What is leased to a session that has ended would be taken away at once, or by nobody.
    IF NOT EXISTS (SELECT FROM session WHERE id = s AND expires > now_us()) THEN state := 4; RETURN; END IF;
    SELECT * INTO setup FROM queues WHERE no = q;
    IF setup.paused THEN state := 1; RETURN; END IF;
    IF setup.lim IS NOT NULL THEN
        SELECT * INTO setup FROM queues WHERE no = q FOR UPDATE;
        IF setup.lim IS NOT NULL AND setup.lim - setup.running < n THEN
            n := setup.lim - setup.running;
            state := 2;
            IF n <= 0 THEN RETURN; END IF;
        END IF;
    END IF;
    IF alone THEN
        WITH pick AS MATERIALIZED (
            SELECT id FROM suspect WHERE id > lows[1] AND id < highs[array_length(highs, 1)]
            ORDER BY id LIMIT n FOR UPDATE SKIP LOCKED
        ), took AS (DELETE FROM suspect r USING pick p WHERE r.id = p.id RETURNING r.*)
        SELECT array_agg(t.id), array_agg(t.fence), array_agg(t.lkey), array_agg(t.body), count(t.lkey), max(t.fence)
            INTO ids, fences, lkeys, bodies, keyed, newest FROM (SELECT * FROM took ORDER BY id) t;
    ELSE
        WITH pick AS MATERIALIZED (
            SELECT j.id FROM unnest(lows, highs) r(lo, hi), LATERAL (
                SELECT id FROM ready WHERE id > r.lo AND id < r.hi ORDER BY id LIMIT n FOR UPDATE SKIP LOCKED
            ) j LIMIT n
        ), took AS (DELETE FROM ready r USING pick p WHERE r.id = p.id RETURNING r.*)
        SELECT array_agg(t.id), array_agg(t.fence), array_agg(t.lkey), array_agg(t.body), count(t.lkey), max(t.fence)
            INTO ids, fences, lkeys, bodies, keyed, newest FROM (SELECT * FROM took ORDER BY id) t;
    END IF;
    IF ids IS NULL THEN state := 0; RETURN; END IF;
    IF array_length(ids, 1) < n THEN state := 0; END IF;
    IF keyed > 0 THEN
        SELECT a.o_ids, a.o_lkeys, a.o_bodies, a.aside INTO ids, lkeys, bodies, keyed
            FROM admit(s, q, setup.key_lim, ids, fences, lkeys, bodies) a;
        IF keyed > 0 THEN state := 3; END IF;
        IF ids IS NULL THEN RETURN; END IF;
    ELSE
        lkeys := NULL;
    END IF;
    IF setup.lim IS NOT NULL THEN
        UPDATE queues SET running = running + array_length(ids, 1) WHERE no = q;
    END IF;
    -- Above every fence that any of these jobs has had, and never below the clock.
    token := greatest(now_us(), last + 1, newest + 1);
    INSERT INTO lease (token, session, queue, since, ids, lkeys, bodies, counted)
        VALUES (token, s, q, now_us(), ids, lkeys, bodies, setup.lim IS NOT NULL);
END $$;

-- Lets those jobs in whose key has room, in the order of keys, and puts the others aside.
CREATE OR REPLACE FUNCTION admit(s bigint, q int, key_lim int, ids bigint[], fences bigint[], lkeys text[], bodies bytea[],
    OUT o_ids bigint[], OUT o_lkeys text[], OUT o_bodies bytea[], OUT aside bigint) LANGUAGE plpgsql AS $$
DECLARE
    job record;
    put_aside bigint[] := '{}';
BEGIN
    FOR job IN SELECT i, f, l, b FROM unnest(ids, fences, lkeys, bodies) u(i, f, l, b)
        WHERE l IS NOT NULL ORDER BY l, i
    LOOP
        INSERT INTO keys AS k (queue, lkey, running) VALUES (q, job.l, 1)
            ON CONFLICT (queue, lkey) DO UPDATE SET running = k.running + 1 WHERE k.running < key_lim;
        IF NOT FOUND THEN
            INSERT INTO blocked (id, queue, lkey, fence, body) VALUES (job.i, q, job.l, job.f, job.b);
            put_aside := put_aside || job.i;
        END IF;
    END LOOP;
    aside := cardinality(put_aside);
    IF aside > 0 THEN
        INSERT INTO tally AS t (queue, shard, blocked) VALUES (q, s, aside)
            ON CONFLICT (queue, shard) DO UPDATE SET blocked = t.blocked + excluded.blocked;
    END IF;
    SELECT array_agg(i ORDER BY i), array_agg(l ORDER BY i), array_agg(b ORDER BY i) INTO o_ids, o_lkeys, o_bodies
        FROM unnest(ids, lkeys, bodies) u(i, l, b) WHERE NOT i = ANY (put_aside);
END $$;
