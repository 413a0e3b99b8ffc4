-- Claims up to n jobs, ranges in their order; jobs of a range come in any order. `state`: 0 as many as there were, 1 paused,
-- 2 at the queue's limit, 3 some were put aside because their key is at its limit, 4 the session has ended. `token` is null if
-- nothing was claimed.
CREATE OR REPLACE FUNCTION claim(s bigint, last bigint, q int, lows bigint[], highs bigint[], n int, alone boolean,
    after boolean, OUT state smallint, OUT token bigint, OUT ids bigint[], OUT lkeys text[], OUT bodies bytea[])
LANGUAGE plpgsql @settings@ AS $$
DECLARE
    t bigint := now_us();
    setup record;
    fences bigint[];
    more record;
    low bigint;
    high bigint;
    want int;
    keyed bigint := 0;
    newest bigint;
BEGIN
    state := 0;
    SELECT x.paused, x.lim, x.running, x.key_lim, EXISTS (SELECT FROM session WHERE id = s AND expires > t) AS lives
        INTO setup FROM queues x WHERE no = q;
    -- What is leased to a session that has ended would be taken away at once, or by nobody.
    IF NOT setup.lives THEN state := 4; RETURN; END IF;
    IF setup.paused THEN state := 1; RETURN; END IF;
    IF setup.lim IS NOT NULL THEN
        SELECT x.lim, x.running, x.key_lim INTO setup FROM queues x WHERE no = q FOR UPDATE;
        IF setup.lim IS NOT NULL AND setup.lim - setup.running < n THEN
            n := setup.lim - setup.running;
            state := 2;
            IF n <= 0 THEN RETURN; END IF;
        END IF;
    END IF;
    want := n;
    FOR i IN 1 .. cardinality(lows) LOOP
        low := lows[i];
        high := highs[i];
        IF alone THEN
            WITH pick AS MATERIALIZED (
                SELECT id FROM suspect WHERE id > low AND id < high ORDER BY id LIMIT want FOR UPDATE SKIP LOCKED
            ), took AS (
                DELETE FROM suspect r USING pick p WHERE r.id = p.id RETURNING r.id, r.fence, r.lkey, r.body
            )
            SELECT array_agg(k.id) AS ids, array_agg(k.fence) AS fences, array_agg(k.lkey) AS lkeys,
                array_agg(k.body) AS bodies, count(k.lkey) AS keyed, max(k.fence) AS newest INTO more FROM took k;
        ELSE
            WITH pick AS MATERIALIZED (
                SELECT id FROM ready WHERE id > low AND id < high ORDER BY id LIMIT want FOR UPDATE SKIP LOCKED
            ), took AS (
                DELETE FROM ready r USING pick p WHERE r.id = p.id RETURNING r.id, r.fence, r.lkey, r.body
            )
            SELECT array_agg(k.id) AS ids, array_agg(k.fence) AS fences, array_agg(k.lkey) AS lkeys,
                array_agg(k.body) AS bodies, count(k.lkey) AS keyed, max(k.fence) AS newest INTO more FROM took k;
        END IF;
        IF more.ids IS NOT NULL THEN
            ids := ids || more.ids;
            fences := fences || more.fences;
            lkeys := lkeys || more.lkeys;
            bodies := bodies || more.bodies;
            keyed := keyed + more.keyed;
            newest := greatest(newest, more.newest);
            want := n - cardinality(ids);
            EXIT WHEN want <= 0;
        END IF;
    END LOOP;
    IF ids IS NULL THEN state := 0; RETURN; END IF;
    IF want > 0 THEN state := 0; END IF;
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
    token := greatest(t, last + 1, newest + 1);
    INSERT INTO lease (token, session, queue, since, ids, lkeys, bodies, counted)
        VALUES (token, s, q, t, ids, lkeys, bodies, setup.lim IS NOT NULL);
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
