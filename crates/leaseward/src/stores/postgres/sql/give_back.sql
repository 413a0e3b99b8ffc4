-- Gives back one lease. Nearly always it is an exclusive one, and free from then on or the first's in line, of another
-- client: that takes three statements, where `submit` takes a dozen, and whoever waits for the lease waits for all of them.
-- Anything else is left to `submit`, as if it had been asked.
CREATE OR REPLACE FUNCTION give_back(me bigint, late_us bigint, wanted text, owner bytea) RETURNS SETOF answer
LANGUAGE plpgsql ROWS 1 @settings@ SET lock_timeout = '2s' AS $$
DECLARE
    room record;
    heir record;
    now_us bigint;
    said answer;
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    SELECT l.last, l.waiters, l.expires_us INTO room FROM leases l
        WHERE l.name = wanted AND l.token = owner AND l.condition = 0
        FOR NO KEY UPDATE;
    now_us := clock_us();
    IF room.expires_us <= now_us OR late_us < now_us THEN
        room.waiters := NULL;
    END IF;
    IF room.waiters = 0 THEN
        UPDATE leases l SET
            token = NULL, who = NULL, first = NULL, len = NULL, condition = NULL, ttl_us = NULL, delay_us = NULL,
            since_us = NULL, expires_us = NULL, value = NULL
            WHERE l.name = wanted
            RETURNING 1, 5 INTO said.op, said.code;
    ELSIF room.waiters > 0 THEN
        -- A notification might be too long with such a `who`: `tell` knows what to do then.
        SELECT p.*, greatest(room.last + 1, now_us) AS begins, least(p.ttl_us, 10000000) AS lasts_us INTO heir
            FROM (SELECT * FROM places p WHERE p.name = wanted ORDER BY p.seq LIMIT 1) p, fences f
            WHERE f.name = wanted AND p.mode = 0 AND p.client <> me AND p.expires_us > now_us
                AND octet_length(p.who) <= 1000
            FOR NO KEY UPDATE OF f SKIP LOCKED;
        IF FOUND THEN
            WITH counted AS (
                UPDATE fences f SET first = heir.begins, last = heir.begins + heir.block - 1 WHERE f.name = wanted
            ), gone AS (
                DELETE FROM places p WHERE p.name = wanted AND p.seq = heir.seq
            )
            UPDATE leases l SET
                last = heir.begins + heir.block - 1, token = heir.token, who = heir.who, first = heir.begins,
                len = heir.block, ttl_us = heir.ttl_us, delay_us = heir.delay_us, since_us = now_us,
                expires_us = now_us + heir.lasts_us, value = heir.value, waiters = l.waiters - 1
                WHERE l.name = wanted
                RETURNING 1, 5, pg_notify('leaseward_' || to_hex(heir.client), json_build_array(
                    l.name, encode(l.token, 'hex'), l.who, l.first, l.len, NULL, heir.lasts_us, l.waiters)::text)
                INTO said.op, said.code;
        END IF;
    END IF;
    IF said.code IS NULL THEN
        RETURN QUERY SELECT * FROM submit(
            me, late_us, true, 0, '{4}', ARRAY[wanted], ARRAY[owner], '{""}', '{0}', '{0}', '{0}', '{0}', '{NULL}');
    ELSE
        RETURN NEXT said;
    END IF;
END $$;
