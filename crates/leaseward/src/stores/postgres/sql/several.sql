-- An ask for several names, sorted: all or none, and never queued. One answer a name, or a single one.
CREATE OR REPLACE FUNCTION ask_all(
    me bigint, late_us bigint, waits boolean, names text[], token bytea, who text, mode int, span bigint, block int,
    delay bigint, content bytea
) RETURNS SETOF answer
LANGUAGE plpgsql @settings@ AS $$
DECLARE
    wish places;
    rooms leases[] := '{}';
    room leases;
    got record;
    now_us bigint := begin_turn(late_us, waits);
    said answer;
    pushes answer[] := '{}';
    -- Names whose lease is ours already.
    ours text[] := '{}';
    -- Whether a lease of ours may be lengthened, if there is one.
    held boolean;
    free int;
BEGIN
    said.op := 0;
    said.code := 11;
    said.first := now_us;
    IF now_us > late_us THEN
        said.code := 12;
    END IF;
    RETURN NEXT said;
    IF said.code = 12 THEN
        RETURN;
    END IF;
    said.op := 1;
    FOR i IN 1 .. cardinality(names) LOOP
        room := enter(names[i], true, waits);
        IF room.name IS NULL THEN
            said.code := 10;
            RETURN NEXT said;
            RETURN;
        END IF;
        rooms := rooms || room;
    END LOOP;
    now_us := clock_us();
    IF now_us > late_us THEN
        -- Its caller has given up while rows were waited for.
        said.code := 10;
        RETURN NEXT said;
        RETURN;
    END IF;
    said.code := 1;
    FOR i IN 1 .. cardinality(names) LOOP
        got := settle(rooms[i], now_us, me, false, pushes);
        room := got.room;
        pushes := got.pushes;
        rooms[i] := room;
        held := NULL;
        IF room.token = ask_all.token THEN
            held := room.condition = 0 AND room.expires_us > now_us;
        ELSIF room.sharers > 0 THEN
            SELECT s.condition = 0 AND s.expires_us > now_us INTO held
                FROM shares s WHERE s.name = room.name AND s.token = ask_all.token;
        END IF;
        IF held THEN
            ours := ours || room.name;
        -- One of ours that has ended is not revived, and stays in the way until its name is free of it.
        ELSIF said.code = 1 AND (held = false OR room.waiters > 0 OR NOT admits(room, mode)) THEN
            said := standing(room, now_us, room.waiters, said);
            said.code := 3;
        END IF;
    END LOOP;
    IF said.code = 1 THEN
        SELECT count(*) INTO free FROM (
            SELECT FROM fences f WHERE f.name = ANY (names) AND f.name <> ALL (ours)
            FOR NO KEY UPDATE SKIP LOCKED) f;
        IF free + cardinality(ours) < cardinality(names) THEN
            said.code := 3;
            said.len := 1;
            said.free_us := 20000;
        END IF;
    END IF;
    IF said.code = 3 THEN
        RETURN NEXT said;
    ELSE
        wish.token := token;
        wish.who := who;
        wish.mode := mode;
        wish.ttl_us := span;
        wish.delay_us := delay;
        wish.block := CASE mode WHEN 0 THEN block ELSE 1 END;
        wish.value := content;
        FOR i IN 1 .. cardinality(names) LOOP
            wish.name := names[i];
            got := ask(rooms[i], wish, false, false, now_us, me, said);
            rooms[i] := got.room;
            said := got.said;
            RETURN NEXT said;
        END LOOP;
    END IF;
    FOR i IN 1 .. cardinality(names) LOOP
        PERFORM leave(rooms[i]);
    END LOOP;
    RETURN QUERY SELECT * FROM unnest(pushes);
END $$;

-- Ends the leases on a name against their holders' will, at once if `at_once`; answers how they stood.
CREATE OR REPLACE FUNCTION break_lease(wanted text, at_once boolean) RETURNS SETOF shares
LANGUAGE plpgsql @settings@ AS $$
DECLARE
    now_us bigint := begin_turn(NULL, true);
    room leases;
    got record;
BEGIN
    room := enter(wanted, false, true);
    IF room.name IS NULL THEN
        RETURN;
    END IF;
    now_us := clock_us();
    -- On behalf of nobody, so that whoever waits is told by a notification.
    got := settle(room, now_us, 0, false, '{}');
    room := got.room;
    IF room.token IS NOT NULL THEN
        RETURN QUERY SELECT room.name, room.token, room.who, 0, room.first, NULL::int, room.condition, room.ttl_us,
            room.delay_us, now_us - room.since_us, room.expires_us - now_us, room.value;
    END IF;
    RETURN QUERY SELECT s.name, s.token, s.who, s.mode, s.first, s.slot, s.condition, s.ttl_us, s.delay_us,
        now_us - s.since_us, s.expires_us - now_us, s.value
        FROM shares s WHERE s.name = room.name ORDER BY s.first;
    IF at_once THEN
        DELETE FROM shares s WHERE s.name = room.name;
        room.sharers := 0;
        room := vacate(room);
        got := settle(room, now_us, 0, true, '{}');
        room := got.room;
    ELSE
        UPDATE shares s SET condition = 1 WHERE s.name = room.name;
        IF room.token IS NOT NULL THEN
            room.condition := 1;
        END IF;
    END IF;
    PERFORM leave(room);
END $$;
