-- A batch, sorted by name: one answer an operation, and what this client's own waiters are to be told. `late_us` is when
-- nobody waits for the answers any more. A name whose row another transaction has is not waited for: its operations are
-- answered with 10 and sent again, alone and with `waits`; what comes alone comes with it at once. The first `simple`
-- operations stand for names that occur once and may be of the kinds that `plain` carries out.
--
-- Deadlocks are impossible: without `waits` nothing is waited for, and with it rows are taken in the order of names.
CREATE OR REPLACE FUNCTION submit(
    me bigint, late_us bigint, waits boolean, simple int,
    kinds smallint[], names text[], tokens bytea[], whos text[], modes int[], spans bigint[], blocks int[],
    delays bigint[], contents bytea[]
) RETURNS SETOF answer
LANGUAGE plpgsql @settings@ AS $$
DECLARE
    op record;
    got record;
    wish places;
    room leases;
    now_us bigint := begin_turn(late_us, waits);
    said answer;
    blank answer;
    pushes answer[] := '{}';
    current text;
    answered bigint[] := '{}';
    is_dirty boolean := false;
    -- Whether something happened that a crash must not undo: a lease began, was lengthened, or ended. A place in a queue is
    -- asked for again, so nobody waits until it is on disk, least of all the holder whose release comes next.
    lasting boolean := false;
    -- Each name that is made takes a place in the server's table of locks, which is small.
    made int := 0;
BEGIN
    said.op := 0;
    said.first := now_us;
    IF now_us > late_us THEN
        said.code := 12;
        RETURN NEXT said;
        RETURN;
    END IF;
    said.code := 11;
    RETURN NEXT said;
    IF simple > 1 THEN
        FOR said IN SELECT * FROM plain(
            now_us, kinds[1:simple], names[1:simple], tokens[1:simple], whos[1:simple], modes[1:simple],
            spans[1:simple], blocks[1:simple], delays[1:simple], contents[1:simple])
        LOOP
            RETURN NEXT said;
            answered := answered || said.op;
        END LOOP;
        IF cardinality(answered) = cardinality(kinds) THEN
            RETURN;
        END IF;
        lasting := cardinality(answered) > 0;
    END IF;
    FOR op IN SELECT * FROM unnest(kinds, names, tokens, whos, modes, spans, blocks, delays, contents)
        WITH ORDINALITY AS o (kind, name, token, who, mode, span, block, delay, content, at)
        WHERE o.at <> ALL (answered)
    LOOP
        said := blank;
        said.op := op.at;
        IF current IS DISTINCT FROM op.name THEN
            IF is_dirty THEN
                PERFORM leave(room);
                is_dirty := false;
            END IF;
            current := op.name;
            IF waits THEN
                SELECT * INTO room FROM leases l WHERE l.name = op.name FOR NO KEY UPDATE;
            ELSE
                SELECT * INTO room FROM leases l WHERE l.name = op.name FOR NO KEY UPDATE SKIP LOCKED;
            END IF;
            IF NOT FOUND THEN
                room := enter(op.name, op.kind <= 2 AND made < 64, waits);
                made := made + 1;
            END IF;
            IF waits THEN
                now_us := clock_us();
                IF now_us > late_us THEN
                    -- Its caller has given up while the row was waited for.
                    room := NULL;
                END IF;
            END IF;
            IF room.token IS NOT NULL AND room.expires_us <= now_us
                OR room.waiters > 0 OR room.sharers > 0
            THEN
                got := settle(room, now_us, me, false, pushes);
                lasting := lasting OR got.room IS DISTINCT FROM room;
                room := got.room;
                pushes := got.pushes;
                is_dirty := true;
            END IF;
        ELSIF room.name IS NULL AND room.last = 0 AND op.kind <= 2 THEN
            room := enter(op.name, made < 64, waits);
            made := made + 1;
        END IF;
        IF room.last IS NULL OR room.name IS NULL AND op.kind <= 2 THEN
            said.code := 10;
        ELSIF room.name IS NULL THEN
            said.code := CASE op.kind WHEN 5 THEN 5 ELSE 6 END;
            said.mode := 0;
        ELSIF op.kind <= 2 THEN
            wish.name := op.name;
            wish.token := op.token;
            wish.who := op.who;
            wish.mode := op.mode;
            wish.ttl_us := op.span;
            wish.delay_us := op.delay;
            wish.block := CASE op.mode WHEN 0 THEN op.block ELSE 1 END;
            wish.value := op.content;
            got := ask(room, wish, true, op.kind = 2, now_us, me, said);
            room := got.room;
            said := got.said;
            is_dirty := is_dirty OR said.code <> 3;
        ELSIF op.kind = 3 THEN
            got := renew(room, op.token, op.span, op.block, now_us, said);
            room := got.room;
            said := got.said;
            is_dirty := is_dirty OR said.code = 4;
        ELSIF op.kind = 4 THEN
            got := release(room, op.token, op.span, now_us, me, said, pushes);
            room := got.room;
            said := got.said;
            pushes := got.pushes;
            is_dirty := true;
        ELSE
            -- A sweep: settling it was all.
            said.code := 5;
        END IF;
        lasting := lasting OR op.kind > 2 OR said.code = 1;
        RETURN NEXT said;
    END LOOP;
    IF is_dirty THEN
        PERFORM leave(room);
    END IF;
    IF NOT lasting THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    RETURN QUERY SELECT * FROM unnest(pushes);
END $$;
