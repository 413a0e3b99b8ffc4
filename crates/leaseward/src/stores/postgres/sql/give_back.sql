-- Gives back one lease. Nearly always it is an exclusive one, and free from then on or the first's in line: that takes
-- three statements, where `submit` takes a dozen, and whoever waits for the lease waits for all of them. Anything else is
-- left to `submit`, as if it had been asked. Rows are found again by where they lie: they are locked, or nobody else's to
-- change while the lease's row is.
CREATE OR REPLACE FUNCTION give_back(me bigint, late_us bigint, wanted text, owner bytea) RETURNS SETOF answer
LANGUAGE plpgsql ROWS 1 @settings@ SET lock_timeout = '2s' AS $$
DECLARE
    room tid;
    fence tid;
    place tid;
    newest bigint;
    line int;
    ends_us bigint;
    now_us bigint;
    -- Of the first in line.
    heir bytea;
    heir_who text;
    heir_block int;
    heir_ttl_us bigint;
    heir_delay_us bigint;
    heir_client bigint;
    heir_value bytea;
    begins bigint;
    lasts_us bigint;
    said answer;
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    SELECT l.ctid, l.last, l.waiters, l.expires_us INTO room, newest, line, ends_us FROM leases l
        WHERE l.name = wanted AND l.token = owner AND l.condition = 0
        FOR NO KEY UPDATE;
    now_us := clock_us();
    IF ends_us <= now_us OR late_us < now_us THEN
        line := NULL;
    END IF;
    IF line = 0 THEN
        UPDATE leases l SET
            token = NULL, who = NULL, first = NULL, len = NULL, condition = NULL, ttl_us = NULL, delay_us = NULL,
            since_us = NULL, expires_us = NULL, value = NULL
            WHERE l.ctid = room
            RETURNING 1, 5 INTO said.op, said.code;
    ELSIF line > 0 THEN
        -- A notification might be too long with such a `who`: `tell` knows what to do then.
        SELECT f.ctid, p.place, p.token, p.who, p.block, p.ttl_us, p.delay_us, p.client, p.value,
                greatest(newest + 1, now_us), least(p.ttl_us, 10000000)
            INTO fence, place, heir, heir_who, heir_block, heir_ttl_us, heir_delay_us, heir_client, heir_value,
                begins, lasts_us
            FROM (SELECT p.ctid AS place, p.* FROM places p WHERE p.name = wanted ORDER BY p.seq LIMIT 1) p, fences f
            WHERE f.name = wanted AND p.mode = 0 AND p.expires_us > now_us AND octet_length(p.who) <= 1000
            FOR NO KEY UPDATE OF f SKIP LOCKED;
        IF FOUND THEN
            line := line - 1;
            WITH counted AS (
                UPDATE fences f SET first = begins, last = begins + heir_block - 1 WHERE f.ctid = fence
            ), gone AS (
                DELETE FROM places p WHERE p.ctid = place
            )
            UPDATE leases l SET
                last = begins + heir_block - 1, token = heir, who = heir_who, first = begins, len = heir_block,
                ttl_us = heir_ttl_us, delay_us = heir_delay_us, since_us = now_us, expires_us = now_us + lasts_us,
                value = heir_value, waiters = line
                WHERE l.ctid = room
                RETURNING 1, 5, CASE WHEN heir_client <> me THEN
                    pg_notify('leaseward_' || to_hex(heir_client), json_build_array(
                        wanted, encode(heir, 'hex'), heir_who, begins, heir_block, NULL, lasts_us, line)::text)
                END INTO said.op, said.code;
        END IF;
    END IF;
    IF said.code IS NULL THEN
        RETURN QUERY SELECT * FROM submit(
            me, late_us, true, 0, '{4}', ARRAY[wanted], ARRAY[owner], '{""}', '{0}', '{0}', '{0}', '{0}', '{NULL}');
        RETURN;
    END IF;
    RETURN NEXT said;
    IF heir_client = me THEN
        said := ROW(0, 20, begins, heir_block, NULL, line, heir_who, 0, lasts_us, NULL, wanted, heir);
        RETURN NEXT said;
    END IF;
END $$;
