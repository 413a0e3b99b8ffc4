-- The common operations of a batch, all in one statement: taking an exclusive lease of a free name, renewing one, giving
-- one back, on names that nobody waits for and that stand in the batch once. Answers those that were carried out; the
-- others, for whatever reason, are left as they were.
CREATE OR REPLACE FUNCTION plain(
    now_us bigint,
    kinds smallint[], names text[], tokens bytea[], whos text[], modes int[], spans bigint[], blocks int[],
    delays bigint[], contents bytea[]
) RETURNS SETOF answer
LANGUAGE plpgsql ROWS 64 AS $$
BEGIN
    RETURN QUERY WITH room AS MATERIALIZED (
        SELECT l.name, l.last, l.token, l.condition, l.expires_us, l.delay_us
        FROM leases l WHERE l.name = ANY (names) AND l.waiters = 0 AND l.sharers = 0
        FOR NO KEY UPDATE SKIP LOCKED
    ), op AS MATERIALIZED (
        SELECT o.*, r.last, r.expires_us
        FROM unnest(kinds, names, tokens, whos, modes, spans, blocks, delays, contents)
            WITH ORDINALITY AS o (kind, name, token, who, mode, span, block, delay, content, at)
        JOIN room r ON r.name = o.name
        WHERE CASE o.kind
            WHEN 3 THEN r.token = o.token AND r.condition = 0 AND r.expires_us > now_us AND o.block = 0
            WHEN 4 THEN r.token = o.token AND r.condition <> 2 AND o.span = 0 AND r.expires_us + r.delay_us > now_us
            ELSE o.kind <= 2 AND o.mode = 0 AND (
                r.token IS NULL
                OR CASE r.condition WHEN 2 THEN r.expires_us ELSE r.expires_us + r.delay_us END <= now_us)
        END
    ), fence AS MATERIALIZED (
        SELECT f.name FROM fences f
        WHERE f.name = ANY (ARRAY(SELECT op.name FROM op WHERE op.kind <= 2))
        FOR NO KEY UPDATE SKIP LOCKED
    ), ready AS MATERIALIZED (
        SELECT op.*, greatest(op.last + 1, now_us) AS begins
        FROM op LEFT JOIN fence f ON f.name = op.name
        WHERE op.kind > 2 OR f.name IS NOT NULL
    ), counted AS (
        UPDATE fences f SET first = r.begins, last = r.begins + r.block - 1
        FROM ready r WHERE f.name = r.name AND r.kind <= 2
    ), written AS (
        UPDATE leases l SET
            last = CASE WHEN r.kind <= 2 THEN r.begins + r.block - 1 ELSE l.last END,
            token = CASE WHEN r.kind <= 3 THEN r.token END,
            who = CASE WHEN r.kind <= 2 THEN r.who WHEN r.kind = 3 THEN l.who END,
            first = CASE WHEN r.kind <= 2 THEN r.begins WHEN r.kind = 3 THEN l.first END,
            len = CASE WHEN r.kind <= 2 THEN r.block WHEN r.kind = 3 THEN l.len END,
            condition = CASE WHEN r.kind <= 3 THEN 0 END,
            ttl_us = CASE WHEN r.kind <= 3 THEN r.span END,
            delay_us = CASE WHEN r.kind <= 2 THEN r.delay WHEN r.kind = 3 THEN l.delay_us END,
            since_us = CASE WHEN r.kind <= 2 THEN now_us WHEN r.kind = 3 THEN l.since_us END,
            expires_us = CASE
                WHEN r.kind <= 2 THEN now_us + r.span
                WHEN r.kind = 3 THEN greatest(l.expires_us, now_us + r.span)
            END,
            value = CASE WHEN r.kind <= 2 THEN r.content WHEN r.kind = 3 THEN l.value END
        FROM ready r WHERE l.name = r.name
    )
    SELECT
        r.at::int,
        CASE
            WHEN r.kind <= 2 THEN 1
            WHEN r.kind = 3 THEN 4
            WHEN r.expires_us > now_us THEN 5
            ELSE 6
        END::smallint,
        r.begins, CASE WHEN r.kind <= 2 THEN r.block END, NULL::int, 0, NULL::text, 2, NULL::bigint, NULL::bigint,
        NULL::text, NULL::bytea
    FROM ready r;
END $$;
