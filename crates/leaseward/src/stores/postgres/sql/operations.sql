-- An ask for one name: granted again, granted, queued or busy. One of several (not `is_one`) lengthens a lease that is
-- ours already and leaves it otherwise as it is.
CREATE OR REPLACE FUNCTION ask(
    INOUT room leases, wish places, is_one boolean, queues boolean, now_us bigint, me bigint, INOUT said answer
)
LANGUAGE plpgsql AS $$
DECLARE
    held shares;
    place bigint;
    begins bigint;
    done boolean;
    capacity int;
    got record;
BEGIN
    IF room.token = wish.token THEN
        IF room.condition <> 0 OR room.expires_us <= now_us THEN
            said.code := 8;
            said.mode := CASE room.condition WHEN 1 THEN 1 WHEN 2 THEN 0 ELSE 2 END;
            RETURN;
        END IF;
        room.expires_us := greatest(room.expires_us, now_us + wish.ttl_us);
        IF is_one THEN
            room.ttl_us := wish.ttl_us;
        END IF;
        said.code := 1;
        said.first := room.first;
        said.len := room.len;
        said.waiters := room.waiters;
        RETURN;
    END IF;
    IF room.sharers > 0 THEN
        SELECT * INTO held FROM shares s WHERE s.name = room.name AND s.token = wish.token;
        IF FOUND THEN
            IF held.condition <> 0 OR held.expires_us <= now_us THEN
                said.code := 8;
                said.mode := CASE held.condition WHEN 1 THEN 1 WHEN 2 THEN 0 ELSE 2 END;
                RETURN;
            END IF;
            UPDATE shares s SET expires_us = greatest(s.expires_us, now_us + wish.ttl_us),
                    ttl_us = CASE WHEN is_one THEN wish.ttl_us ELSE s.ttl_us END
                WHERE s.name = room.name AND s.token = wish.token;
            said.code := 1;
            said.first := held.first;
            said.len := 1;
            said.slot := held.slot;
            said.waiters := room.waiters;
            RETURN;
        END IF;
        IF wish.mode > 0 THEN
            SELECT s.mode INTO capacity FROM shares s
                WHERE s.name = room.name AND s.mode > 0 AND s.mode <> wish.mode LIMIT 1;
            IF FOUND THEN
                room := unqueue(room, wish.token);
                said.code := 9;
                said.mode := capacity;
                RETURN;
            END IF;
        END IF;
    END IF;
    IF room.waiters > 0 THEN
        UPDATE places p SET mode = wish.mode, ttl_us = wish.ttl_us, delay_us = wish.delay_us, block = wish.block,
                expires_us = now_us + least(wish.ttl_us, 10000000), value = wish.value
            WHERE p.name = room.name AND p.token = wish.token RETURNING p.seq INTO place;
    END IF;
    IF place IS NULL AND room.waiters = 0 AND admits(room, wish.mode) THEN
        got := reserve(room, wish.block, now_us);
        room := got.room;
        begins := got.begins;
        done := got.done;
        IF done THEN
            got := admit(room, wish, begins, wish.ttl_us, now_us);
            room := got.room;
            said.slot := got.slot;
            said.code := 1;
            said.first := begins;
            said.len := wish.block;
            said.waiters := 0;
            RETURN;
        END IF;
    END IF;
    said.first := room.last;
    IF place IS NULL THEN
        said := standing(room, now_us, room.waiters, said);
    ELSE
        said := standing(room, now_us, (SELECT count(*) FROM places p WHERE p.name = room.name AND p.seq < place)::int,
            said);
    END IF;
    IF said.free_us IS NULL AND (done = false OR said.waiters = 0) THEN
        -- Free but for a transaction that holds the fence row: nobody tells when it ends.
        said.free_us := 20000;
        said.len := 1;
    END IF;
    IF place IS NOT NULL THEN
        said.code := 2;
    ELSIF queues THEN
        room.seq := room.seq + 1;
        room.waiters := room.waiters + 1;
        INSERT INTO places (name, seq, token, who, mode, ttl_us, delay_us, block, client, since_us, expires_us, value)
            VALUES (room.name, room.seq, wish.token, wish.who, wish.mode, wish.ttl_us, wish.delay_us, wish.block, me,
                now_us, now_us + least(wish.ttl_us, 10000000), wish.value);
        said.code := 2;
    ELSE
        said.code := 3;
    END IF;
END $$;

-- Takes a token out of the queue.
CREATE OR REPLACE FUNCTION unqueue(INOUT room leases, gone bytea)
LANGUAGE plpgsql AS $$
BEGIN
    IF room.waiters > 0 THEN
        DELETE FROM places p WHERE p.name = room.name AND p.token = gone;
        IF FOUND THEN
            room.waiters := room.waiters - 1;
        END IF;
    END IF;
END $$;

-- A renewal. It needs the fence row only if further fences are asked for, and does without them if that is held.
CREATE OR REPLACE FUNCTION renew(
    INOUT room leases, owner bytea, lasts_us bigint, block int, now_us bigint, INOUT said answer
)
LANGUAGE plpgsql AS $$
DECLARE
    held shares;
    begins bigint;
    done boolean;
    got record;
BEGIN
    said.code := 6;
    IF room.token = owner THEN
        held.condition := room.condition;
        held.expires_us := room.expires_us;
    ELSIF room.sharers > 0 THEN
        SELECT * INTO held FROM shares s WHERE s.name = room.name AND s.token = owner;
    END IF;
    IF held.condition IS NULL THEN
        said.mode := 0;
        RETURN;
    ELSIF held.condition <> 0 OR held.expires_us <= now_us THEN
        said.mode := CASE held.condition WHEN 1 THEN 1 WHEN 2 THEN 0 ELSE 2 END;
        RETURN;
    END IF;
    IF held.token IS NULL THEN
        room.expires_us := greatest(room.expires_us, now_us + lasts_us);
        room.ttl_us := lasts_us;
    ELSE
        UPDATE shares s SET expires_us = greatest(s.expires_us, now_us + lasts_us), ttl_us = lasts_us
            WHERE s.name = room.name AND s.token = owner;
    END IF;
    said.code := 4;
    said.waiters := room.waiters;
    IF block > 0 AND room.waiters = 0 THEN
        got := reserve(room, block, now_us);
        room := got.room;
        begins := got.begins;
        done := got.done;
        IF done THEN
            said.first := begins;
            said.len := block;
        END IF;
    END IF;
END $$;

-- A release, of a lease or of a place.
CREATE OR REPLACE FUNCTION release(
    INOUT room leases, owner bytea, keep_us bigint, now_us bigint, me bigint, INOUT said answer, INOUT pushes answer[]
)
LANGUAGE plpgsql AS $$
DECLARE
    held shares;
    before int := room.waiters;
    was_live boolean;
    got record;
BEGIN
    IF room.token = owner THEN
        held.condition := room.condition;
        held.expires_us := room.expires_us;
    ELSIF room.sharers > 0 THEN
        SELECT * INTO held FROM shares s WHERE s.name = room.name AND s.token = owner;
    END IF;
    IF held.condition IS NULL THEN
        room := unqueue(room, owner);
        said.code := CASE WHEN room.waiters < before THEN 5 ELSE 6 END;
        said.mode := 0;
        got := settle(room, now_us, me, false, pushes);
        room := got.room;
        pushes := got.pushes;
        RETURN;
    ELSIF held.condition = 2 THEN
        said.code := 5;
        RETURN;
    END IF;
    was_live := held.expires_us > now_us;
    IF was_live AND keep_us > 0 THEN
        IF held.token IS NULL THEN
            room.condition := 2;
            room.expires_us := now_us + keep_us;
        ELSE
            UPDATE shares s SET condition = 2, expires_us = now_us + keep_us
                WHERE s.name = room.name AND s.token = owner;
        END IF;
        said.code := 5;
        RETURN;
    END IF;
    IF held.token IS NULL THEN
        room := vacate(room);
    ELSE
        DELETE FROM shares s WHERE s.name = room.name AND s.token = owner;
        room.sharers := room.sharers - 1;
    END IF;
    -- A lease within its lock delay has ended, but its holder has now come back to say so.
    said.code := CASE WHEN was_live THEN 5 ELSE 6 END;
    said.mode := 2;
    got := settle(room, now_us, me, true, pushes);
    room := got.room;
    pushes := got.pushes;
END $$;
