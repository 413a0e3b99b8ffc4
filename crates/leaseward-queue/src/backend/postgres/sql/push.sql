CREATE OR REPLACE FUNCTION now_us() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- Jobs that are due and neither unique nor bound to a key; all of them new. Those of a slot come one after the other. `tell`:
-- if others sleep, they are told at the commit. One array comes back, whether others sleep before the ids: a call that is
-- no table is understood in half the time, and what needs no settings of its own begins sooner. For a lone job that is as
-- long as inserting it.
CREATE OR REPLACE FUNCTION push(s bigint, slots bigint[], counts int[], bodies bytea[], tell boolean) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    slot bigint;
    ids bigint[];
    sleeps boolean;
BEGIN
    FOR i IN 1 .. cardinality(slots) LOOP
        slot := slots[i];
        ids := ids || ARRAY(SELECT slot + nextval('@schema@.seq') FROM generate_series(1, counts[i]));
        INSERT INTO @schema@.tally AS t (queue, shard, pushed) VALUES (slot >> 48, s, counts[i])
            ON CONFLICT (queue, shard) DO UPDATE SET pushed = t.pushed + excluded.pushed;
    END LOOP;
    -- In the list of columns: as a table they would be written down before they are read.
    INSERT INTO @schema@.ready (id, body) SELECT unnest(ids), unnest(bodies);
    sleeps := EXISTS (SELECT FROM @schema@.session WHERE idle AND id <> s);
    IF sleeps AND tell THEN
        PERFORM pg_notify('@schema@', 'w' || (u >> 48)) FROM unnest(slots) u;
    END IF;
    RETURN sleeps::int::bigint || ids;
END $$;

-- Any jobs. A due time below zero is counted from now. A unique key is nobody's once its time is over.
CREATE OR REPLACE FUNCTION push_any(s bigint, slots bigint[], bodies bytea[], dues bigint[], lkeys text[],
    ukeys text[], windows bigint[], tell boolean, OUT ids bigint[], OUT fresh boolean[], OUT sleeps boolean)
LANGUAGE plpgsql @settings@ AS $$
DECLARE
    t bigint := now_us();
    won boolean[];
BEGIN
    ids := ARRAY(SELECT unnest(slots) + nextval('seq'));
    fresh := ARRAY(SELECT true FROM unnest(slots));
    IF EXISTS (SELECT FROM unnest(ukeys) k WHERE k IS NOT NULL) THEN
        -- In the order of keys, so that two who push the same ones do not wait for each other.
        WITH mine AS (
            INSERT INTO uniq AS u (queue, key, job, until)
            SELECT (i >> 48)::int, k, i, CASE WHEN w = 0 THEN 9223372036854775807 ELSE t + w END
            FROM unnest(ids, ukeys, windows) n(i, k, w) WHERE k IS NOT NULL ORDER BY 1, 2
            ON CONFLICT (queue, key) DO UPDATE SET job = excluded.job, until = excluded.until WHERE u.until <= t
            RETURNING job
        )
        SELECT array_agg(n.k IS NULL OR m.job IS NOT NULL ORDER BY n.o) INTO fresh
        FROM unnest(ids, ukeys) WITH ORDINALITY n(i, k, o) LEFT JOIN mine m ON m.job = n.i;
        -- Who has the key already.
        ids := ARRAY(SELECT CASE WHEN f THEN i ELSE (SELECT u.job FROM uniq u WHERE u.queue = (i >> 48)::int
            AND u.key = k) END FROM unnest(ids, fresh, ukeys) WITH ORDINALITY n(i, f, k, o) ORDER BY o);
    END IF;
    INSERT INTO ready (id, lkey, body)
        SELECT i, l, b FROM unnest(ids, fresh, dues, lkeys, bodies) n(i, f, d, l, b) WHERE f AND d >= 0 AND d <= t;
    INSERT INTO later (id, due, alone, lkey, body)
        SELECT i, CASE WHEN d < 0 THEN t - d ELSE d END, false, l, b
        FROM unnest(ids, fresh, dues, lkeys, bodies) n(i, f, d, l, b) WHERE f AND (d < 0 OR d > t);
    INSERT INTO tally AS y (queue, shard, pushed, later)
        SELECT (i >> 48)::int, s, count(*), count(*) FILTER (WHERE d < 0 OR d > t)
        FROM unnest(ids, fresh, dues) n(i, f, d) WHERE f GROUP BY 1 ORDER BY 1
        ON CONFLICT (queue, shard) DO UPDATE SET pushed = y.pushed + excluded.pushed, later = y.later + excluded.later;
    sleeps := EXISTS (SELECT FROM session WHERE idle AND id <> s);
    IF sleeps AND tell THEN
        PERFORM pg_notify('@schema@', 'w' || q) FROM (
            SELECT DISTINCT (i >> 48)::int AS q FROM unnest(ids, fresh, dues) n(i, f, d) WHERE f AND d >= 0 AND d <= t) n;
    END IF;
END $$;

-- The same in a transaction of the user's: counted apart, because that may last, and told at its commit.
CREATE OR REPLACE FUNCTION push_in(slots bigint[], bodies bytea[], dues bigint[], lkeys text[], ukeys text[],
    windows bigint[], OUT ids bigint[], OUT fresh boolean[]) LANGUAGE plpgsql @settings@ AS $$
BEGIN
    SELECT p.ids, p.fresh INTO ids, fresh FROM push_any(
        -(random() * 9e18)::bigint - 1, slots, bodies, dues, lkeys, ukeys, windows, true) p;
END $$;

CREATE OR REPLACE FUNCTION queue_no(wanted text) RETURNS int LANGUAGE plpgsql @settings@ AS $$
DECLARE
    found int;
BEGIN
    SELECT no INTO found FROM queues WHERE name = wanted;
    IF found IS NULL THEN
        LOCK TABLE queues IN SHARE ROW EXCLUSIVE MODE;
        INSERT INTO queues (no, name) SELECT coalesce(max(no), 0) + 1, wanted FROM queues ON CONFLICT (name) DO NOTHING;
        SELECT no INTO found FROM queues WHERE name = wanted;
    END IF;
    RETURN found;
END $$;
