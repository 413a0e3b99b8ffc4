-- Asks alone for an exclusive lease of one name. Nearly always the name is free, or held and one more stands in line: that
-- takes two statements, where `submit` takes a dozen; and while they run, whoever gives the lease back waits for the row.
-- Anything else is left to `submit`, as if it had been asked. Rows are found again by where they lie: they are locked.
CREATE OR REPLACE FUNCTION take(
    me bigint, late_us bigint, queues boolean, wanted text, owner bytea, whose text, lasts_us bigint, size int,
    delay bigint, content bytea
) RETURNS SETOF answer
LANGUAGE plpgsql ROWS 2 @settings@ SET lock_timeout = '2s' AS $$
DECLARE
    room tid;
    newest bigint;
    holder bytea;
    line int;
    place bigint;
    ends_us bigint;
    now_us bigint;
    begins bigint;
    said answer;
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    SELECT l.ctid, l.last, l.token, l.waiters, l.seq + 1, l.expires_us INTO room, newest, holder, line, place, ends_us
        FROM leases l
        WHERE l.name = wanted AND l.sharers = 0 AND (l.token IS NULL OR l.token <> owner AND l.condition = 0)
        FOR NO KEY UPDATE;
    now_us := clock_us();
    IF late_us < now_us THEN
        line := NULL;
    END IF;
    IF holder IS NULL AND line = 0 THEN
        begins := greatest(newest + 1, now_us);
        WITH counted AS (
            UPDATE fences f SET first = begins, last = begins + size - 1
                FROM (SELECT g.ctid FROM fences g WHERE g.name = wanted FOR NO KEY UPDATE SKIP LOCKED) own
                WHERE f.ctid = own.ctid RETURNING 1
        )
        UPDATE leases l SET
            last = begins + size - 1, token = owner, who = whose, first = begins, len = size, condition = 0,
            ttl_us = lasts_us, delay_us = delay, since_us = now_us, expires_us = now_us + lasts_us, value = content
            WHERE l.ctid = room AND EXISTS (SELECT FROM counted)
            RETURNING 1, 1, begins, size, 0 INTO said.op, said.code, said.first, said.len, said.waiters;
    ELSIF queues AND holder IS NOT NULL AND line >= 0 AND ends_us > now_us THEN
        -- Not behind one who is dead, nor behind itself.
        WITH placed AS (
            INSERT INTO places (
                name, seq, token, who, mode, ttl_us, delay_us, block, client, since_us, expires_us, value)
            SELECT wanted, place, owner, whose, 0, lasts_us, delay, size, me, now_us,
                now_us + least(lasts_us, 10000000), content
            WHERE line = 0
                OR now_us < (SELECT p.expires_us FROM places p WHERE p.name = wanted ORDER BY p.seq LIMIT 1)
            ON CONFLICT DO NOTHING RETURNING 1
        )
        UPDATE leases l SET seq = place, waiters = line + 1
            WHERE l.ctid = room AND EXISTS (SELECT FROM placed)
            RETURNING 1, 2, newest, line, l.who, 0, ends_us - now_us, ends_us + l.delay_us - now_us
            INTO said.op, said.code, said.first, said.waiters, said.who, said.mode, said.left_us, said.free_us;
        IF FOUND THEN
            -- As in `submit`: a place is asked for again, so nobody waits until it is on disk.
            PERFORM set_config('synchronous_commit', 'off', true);
        END IF;
    END IF;
    IF said.code IS NULL THEN
        RETURN QUERY SELECT * FROM submit(
            me, late_us, true, 0, ARRAY[CASE WHEN queues THEN 2 ELSE 1 END]::smallint[], ARRAY[wanted], ARRAY[owner],
            ARRAY[whose], '{0}', ARRAY[lasts_us], ARRAY[size], ARRAY[delay], ARRAY[content]);
        RETURN;
    END IF;
    RETURN NEXT said;
    said := NULL;
    said.op := 0;
    said.code := 11;
    said.first := now_us;
    RETURN NEXT said;
END $$;
