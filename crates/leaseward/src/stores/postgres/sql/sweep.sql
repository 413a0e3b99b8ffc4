-- Looks at some names, from where the last sweep of any client ended. Forgets those that were free and unused for
-- `age_us`, unless somebody has their row, and keeps the largest of their fences as the floor; answers how many, and
-- which names have something that expired.
CREATE OR REPLACE FUNCTION sweep(most int, age_us bigint, OUT forgotten int, OUT expired text[])
LANGUAGE plpgsql @settings@ AS $$
DECLARE
    now_us bigint := clock_us();
    begins text;
    ends text;
    seen int;
    top bigint;
BEGIN
    forgotten := 0;
    expired := '{}';
    -- One at a time: two would only stand in each other's way.
    IF NOT pg_try_advisory_xact_lock(hashtextextended(current_schema(), 7098326)) THEN
        RETURN;
    END IF;
    SELECT m.swept INTO begins FROM meta m;
    SELECT max(s.name), count(*) INTO ends, seen
        FROM (SELECT l.name FROM leases l WHERE l.name > begins ORDER BY l.name LIMIT most) s;
    WITH idle AS MATERIALIZED (
        SELECT l.name, l.last FROM leases l
        WHERE l.name > begins AND l.name <= ends
            AND l.token IS NULL AND l.sharers = 0 AND l.waiters = 0 AND l.last < now_us - age_us
        FOR UPDATE SKIP LOCKED
    ), fence AS MATERIALIZED (
        SELECT f.name FROM fences f WHERE f.name = ANY (ARRAY(SELECT i.name FROM idle i)) FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM leases l USING fence f WHERE l.name = f.name
    ), gone_too AS (
        DELETE FROM fences g USING fence f WHERE g.name = f.name
    )
    SELECT count(*), max(i.last) INTO forgotten, top FROM idle i JOIN fence f ON f.name = i.name;
    expired := ARRAY(
        SELECT l.name FROM leases l
        WHERE l.name > begins AND l.name <= ends AND (
            l.token IS NOT NULL AND blocks_until(l.expires_us, l.delay_us, l.condition) <= now_us
            OR l.sharers > 0 AND EXISTS (
                SELECT FROM shares s WHERE s.name = l.name
                    AND blocks_until(s.expires_us, s.delay_us, s.condition) <= now_us)
            OR l.waiters > 0 AND EXISTS (
                SELECT FROM places p WHERE p.name = l.name AND p.expires_us <= now_us))
        ORDER BY l.name);
    -- The end was reached: from the beginning again.
    ends := CASE WHEN seen < most THEN '' ELSE ends END;
    UPDATE meta m SET floor = greatest(m.floor, top), swept = ends WHERE m.floor < top OR m.swept <> ends;
END $$;
