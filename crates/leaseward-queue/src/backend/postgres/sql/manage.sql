-- Takes a job out that has not begun, or has its worker told. 0 there is no such job, 1 taken out, 2 told.
CREATE OR REPLACE FUNCTION cancel(s bigint, i bigint, OUT verdict smallint, OUT owner bigint)
LANGUAGE plpgsql @settings@ AS $$
DECLARE
    q int := (i >> 48)::int;
    body bytea;
    was_later boolean := false;
    was_blocked boolean := false;
BEGIN
    verdict := 1;
    DELETE FROM ready r WHERE r.id = i RETURNING r.body INTO body;
    IF NOT FOUND THEN DELETE FROM suspect r WHERE r.id = i RETURNING r.body INTO body; END IF;
    IF body IS NULL THEN
        DELETE FROM later r WHERE r.id = i RETURNING r.body INTO body; was_later := FOUND;
    END IF;
    IF body IS NULL THEN
        DELETE FROM blocked r WHERE r.id = i RETURNING r.body INTO body; was_blocked := FOUND;
    END IF;
    IF body IS NOT NULL THEN
        DELETE FROM uniq u WHERE u.queue = q AND u.job = i AND u.until = 9223372036854775807;
        DELETE FROM progress p WHERE p.id = i;
        INSERT INTO tally AS t (queue, shard, cancelled, later, blocked) VALUES (q, s, 1, -was_later::int, -was_blocked::int)
            ON CONFLICT (queue, shard) DO UPDATE SET cancelled = t.cancelled + 1, later = t.later + excluded.later,
                blocked = t.blocked + excluded.blocked;
        RETURN;
    END IF;
    verdict := 2;
    UPDATE lease l SET cancelled = l.cancelled || i
        WHERE l.queue = q AND i = ANY (l.ids) AND NOT i = ANY (l.done) AND NOT i = ANY (l.cancelled) RETURNING l.session INTO owner;
    IF NOT FOUND THEN
        SELECT l.session INTO owner FROM lease l WHERE l.queue = q AND i = ANY (l.ids) AND NOT i = ANY (l.done);
        IF NOT FOUND THEN verdict := 0; END IF;
    END IF;
END $$;

-- Takes dead letters out; their bodies come back to be pushed again as they were.
CREATE OR REPLACE FUNCTION replay(s bigint, i bigint, fresh bytea) RETURNS boolean LANGUAGE plpgsql @settings@ AS $$
BEGIN
    WITH up AS (DELETE FROM dead WHERE id = i RETURNING id, fence, lkey)
    INSERT INTO ready (id, fence, lkey, body) SELECT id, fence, lkey, fresh FROM up;
    IF NOT FOUND THEN RETURN false; END IF;
    INSERT INTO tally AS t (queue, shard, dead) VALUES ((i >> 48)::int, s, -1)
        ON CONFLICT (queue, shard) DO UPDATE SET dead = t.dead - 1;
    RETURN true;
END $$;

-- Has everything that was put aside try again: the limit of its queue was changed.
CREATE OR REPLACE FUNCTION unblock(s bigint, q int) RETURNS void LANGUAGE plpgsql @settings@ AS $$
DECLARE
    moved bigint;
BEGIN
    WITH up AS (DELETE FROM blocked WHERE queue = q RETURNING id, fence, lkey, body),
        put AS (INSERT INTO ready (id, fence, lkey, body) SELECT * FROM up RETURNING 1)
    SELECT count(*) INTO moved FROM put;
    INSERT INTO tally AS t (queue, shard, blocked) VALUES (q, s, -moved)
        ON CONFLICT (queue, shard) DO UPDATE SET blocked = t.blocked + excluded.blocked;
END $$;

-- Each queue: setup, then counters; what is leased is counted from the leases, of which there are few.
CREATE OR REPLACE FUNCTION stats() RETURNS TABLE (no int, name text, paused boolean, lim int, key_lim int, pushed bigint,
    done bigint, failed bigint, dead bigint, cancelled bigint, later bigint, blocked bigint, leased bigint,
    interrupted bigint)
LANGUAGE sql STABLE @settings@ AS $$
    SELECT q.no, q.name, q.paused, q.lim, q.key_lim,
        coalesce(t.pushed, 0)::bigint, coalesce(t.done, 0)::bigint, coalesce(t.failed, 0)::bigint, coalesce(t.dead, 0)::bigint,
        coalesce(t.cancelled, 0)::bigint, coalesce(t.later, 0)::bigint, coalesce(t.blocked, 0)::bigint, coalesce(l.n, 0)::bigint,
        coalesce(t.interrupted, 0)::bigint
    FROM queues q
    LEFT JOIN (SELECT queue, sum(pushed) AS pushed, sum(done) AS done, sum(failed) AS failed, sum(dead) AS dead,
        sum(cancelled) AS cancelled, sum(later) AS later, sum(blocked) AS blocked,
        sum(interrupted) AS interrupted FROM tally GROUP BY queue) t ON t.queue = q.no
    LEFT JOIN (SELECT queue, sum(cardinality(ids) - cardinality(done)) AS n FROM lease GROUP BY queue) l ON l.queue = q.no
    ORDER BY q.name
$$;
