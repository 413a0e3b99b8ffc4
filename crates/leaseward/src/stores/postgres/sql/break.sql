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
