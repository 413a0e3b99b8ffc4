-- The moment, by the database's clock.
CREATE OR REPLACE FUNCTION clock_us() RETURNS bigint
LANGUAGE sql VOLATILE AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- Begins a transaction of ours; answers the moment.
CREATE OR REPLACE FUNCTION begin_turn(late_us bigint, waits boolean) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    -- A lease that was told of must not be forgotten by a crash, whatever is good enough for the rest of the database.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF waits THEN
        PERFORM set_config('lock_timeout', '2s', true);
    END IF;
    RETURN clock_us();
END $$;

-- When a lease leaves its name free: at its end, or after the delay that was asked for if its holder vanished.
CREATE OR REPLACE FUNCTION blocks_until(expires_us bigint, delay_us bigint, condition smallint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT CASE condition WHEN 2 THEN expires_us ELSE expires_us + delay_us END $$;

-- Takes the row of a name, without waiting for whoever has it unless `waits`; NULL if somebody has. A name that is not
-- there is made if `makes`, else its row comes without a name.
CREATE OR REPLACE FUNCTION enter(wanted text, makes boolean, waits boolean) RETURNS leases
LANGUAGE plpgsql AS $$
DECLARE
    room leases;
    key bigint;
BEGIN
    IF waits THEN
        SELECT * INTO room FROM leases l WHERE l.name = wanted FOR NO KEY UPDATE;
    ELSE
        SELECT * INTO room FROM leases l WHERE l.name = wanted FOR NO KEY UPDATE SKIP LOCKED;
    END IF;
    IF FOUND THEN
        RETURN room;
    END IF;
    IF EXISTS (SELECT FROM leases l WHERE l.name = wanted) THEN
        RETURN NULL;
    END IF;
    IF NOT makes THEN
        room.last := 0;
        RETURN room;
    END IF;
    -- An insert would wait for another transaction that inserts the same name, so the right to is asked for first.
    key := hashtextextended(wanted, 7098325);
    IF waits THEN
        PERFORM pg_advisory_xact_lock(key);
    ELSIF NOT pg_try_advisory_xact_lock(key) THEN
        RETURN NULL;
    END IF;
    INSERT INTO leases (name, last) SELECT wanted, m.floor FROM meta m
        ON CONFLICT DO NOTHING RETURNING * INTO room;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO fences (name, first, last) VALUES (wanted, 0, room.last);
    RETURN room;
END $$;

-- Reserves the next fences of a name and records the end of the block; answers whether no transaction holds them.
CREATE OR REPLACE FUNCTION reserve(INOUT room leases, len int, now_us bigint, OUT begins bigint, OUT done boolean)
LANGUAGE plpgsql AS $$
DECLARE
    is_first boolean := room.token IS NULL AND room.sharers = 0;
BEGIN
    begins := greatest(room.last + 1, now_us);
    UPDATE fences f
        SET last = begins + len - 1, first = CASE WHEN is_first THEN begins ELSE f.first END
        FROM (SELECT name FROM fences WHERE name = room.name FOR NO KEY UPDATE SKIP LOCKED) own
        WHERE f.name = own.name;
    done := FOUND;
    IF done THEN
        room.last := begins + len - 1;
    END IF;
END $$;

-- Whether the present holders leave room for one more of this mode.
CREATE OR REPLACE FUNCTION admits(room leases, wanted int) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF room.token IS NOT NULL THEN
        RETURN false;
    ELSIF room.sharers = 0 THEN
        RETURN true;
    ELSIF wanted = 0 OR wanted > 0 AND room.sharers >= wanted THEN
        RETURN false;
    END IF;
    -- All of them have the same mode.
    RETURN wanted = (SELECT s.mode FROM shares s WHERE s.name = room.name LIMIT 1);
END $$;

-- Ends an exclusive lease.
CREATE OR REPLACE FUNCTION vacate(INOUT room leases)
LANGUAGE plpgsql AS $$
BEGIN
    room.token := NULL;
    room.who := NULL;
    room.first := NULL;
    room.len := NULL;
    room.condition := NULL;
    room.ttl_us := NULL;
    room.delay_us := NULL;
    room.since_us := NULL;
    room.expires_us := NULL;
    room.value := NULL;
END $$;

-- Gives a lease whose fences are reserved; the room must admit it. Answers the permit, if it is one.
CREATE OR REPLACE FUNCTION admit(
    INOUT room leases, wish places, begins bigint, lasts_us bigint, now_us bigint, OUT slot int
)
LANGUAGE plpgsql AS $$
BEGIN
    IF wish.mode = 0 THEN
        room.token := wish.token;
        room.who := wish.who;
        room.first := begins;
        room.len := wish.block;
        room.condition := 0;
        room.ttl_us := wish.ttl_us;
        room.delay_us := wish.delay_us;
        room.since_us := now_us;
        room.expires_us := now_us + lasts_us;
        room.value := wish.value;
        RETURN;
    END IF;
    IF wish.mode > 0 THEN
        -- The smallest that nobody has.
        SELECT coalesce(min(taken.at) FILTER (WHERE taken.slot <> taken.at), count(*)) INTO slot
            FROM (SELECT s.slot, row_number() OVER (ORDER BY s.slot) - 1 AS at
                FROM shares s WHERE s.name = room.name) taken;
    END IF;
    INSERT INTO shares (name, token, who, mode, first, slot, condition, ttl_us, delay_us, since_us, expires_us, value)
        VALUES (room.name, wish.token, wish.who, wish.mode, begins, slot, 0, wish.ttl_us, wish.delay_us,
            now_us, now_us + lasts_us, wish.value);
    room.sharers := room.sharers + 1;
END $$;

-- Tells a waiting client. Its own answers tell it of what it did itself.
CREATE OR REPLACE FUNCTION tell(place places, room leases, begins bigint, len int, slot int, lasts_us bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    said text := json_build_array(place.name, encode(place.token, 'hex'), place.who, begins, len, slot, lasts_us,
        room.waiters)::text;
BEGIN
    -- The longest that can be sent is 7999 bytes; without a token it says: ask again.
    IF octet_length(said) > 7900 THEN
        said := json_build_array(place.name)::text;
    END IF;
    PERFORM pg_notify('leaseward_' || to_hex(place.client), said);
END $$;

-- Ends what has expired and gives the name to the next live waiters. `freed` says that the name has just come free: if a
-- transaction holds its fence row, the first in line is woken and asks again.
CREATE OR REPLACE FUNCTION settle(INOUT room leases, now_us bigint, me bigint, freed boolean, INOUT pushes answer[])
LANGUAGE plpgsql AS $$
DECLARE
    place places;
    gone int;
    begins bigint;
    done boolean;
    slot int;
    lasts_us bigint;
    got record;
BEGIN
    IF room.token IS NOT NULL AND blocks_until(room.expires_us, room.delay_us, room.condition) <= now_us THEN
        room := vacate(room);
        freed := true;
    END IF;
    IF room.sharers > 0 THEN
        DELETE FROM shares s
            WHERE s.name = room.name AND blocks_until(s.expires_us, s.delay_us, s.condition) <= now_us;
        GET DIAGNOSTICS gone = ROW_COUNT;
        room.sharers := room.sharers - gone;
        freed := freed OR gone > 0;
    END IF;
    WHILE room.waiters > 0 LOOP
        SELECT * INTO place FROM places p WHERE p.name = room.name ORDER BY p.seq LIMIT 1;
        IF place.expires_us > now_us THEN
            EXIT WHEN NOT admits(room, place.mode);
            IF place.mode <> 0 THEN
                place.block := 1;
            END IF;
            got := reserve(room, place.block, now_us);
            room := got.room;
            begins := got.begins;
            done := got.done;
            IF NOT done THEN
                IF freed THEN
                    PERFORM pg_notify('leaseward_' || to_hex(place.client), json_build_array(place.name)::text);
                END IF;
                EXIT;
            END IF;
        END IF;
        DELETE FROM places p WHERE p.name = room.name AND p.seq = place.seq;
        room.waiters := room.waiters - 1;
        CONTINUE WHEN place.expires_us <= now_us;
        lasts_us := least(place.ttl_us, 10000000);
        got := admit(room, place, begins, lasts_us, now_us);
        room := got.room;
        slot := got.slot;
        IF place.client = me THEN
            pushes := pushes || ROW(
                0, 20, begins, place.block, slot, room.waiters, place.who, place.mode, lasts_us, NULL, room.name,
                place.token)::answer;
        ELSE
            PERFORM tell(place, room, begins, place.block, slot, lasts_us);
        END IF;
    END LOOP;
END $$;

-- Writes the row of a name back.
CREATE OR REPLACE FUNCTION leave(room leases) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE leases l SET
        last = room.last, token = room.token, who = room.who, first = room.first, len = room.len,
        condition = room.condition, ttl_us = room.ttl_us, delay_us = room.delay_us, since_us = room.since_us,
        expires_us = room.expires_us, value = room.value, sharers = room.sharers, waiters = room.waiters,
        seq = room.seq
        WHERE l.name = room.name;
END $$;

-- Who is in the way, for how long yet, and when asking again makes sense.
CREATE OR REPLACE FUNCTION standing(room leases, now_us bigint, ahead int, INOUT said answer)
LANGUAGE plpgsql AS $$
BEGIN
    said.waiters := ahead;
    IF room.token IS NOT NULL THEN
        said.who := room.who;
        said.mode := 0;
        said.left_us := room.expires_us - now_us;
        said.free_us := blocks_until(room.expires_us, room.delay_us, room.condition) - now_us;
    ELSIF room.sharers > 0 THEN
        SELECT s.who, s.mode, s.expires_us - now_us, blocks_until(s.expires_us, s.delay_us, s.condition) - now_us
            INTO said.who, said.mode, said.left_us, said.free_us
            FROM shares s WHERE s.name = room.name
            ORDER BY blocks_until(s.expires_us, s.delay_us, s.condition), s.first LIMIT 1;
    END IF;
END $$;
