-- Job numbers: 44 bits, so that a queue and a priority stand before them in one key.
CREATE SEQUENCE seq MAXVALUE 17592186044415;
CREATE TABLE queues (
    no int PRIMARY KEY,
    name text NOT NULL UNIQUE,
    paused boolean NOT NULL DEFAULT false
) WITH (fillfactor = 20);
-- Only what is due. The key is queue, priority, number: the order in which jobs are claimed, and no other index.
CREATE TABLE ready (
    id bigint PRIMARY KEY,
    fence bigint,
    lkey text,
    body bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_threshold = 100000, autovacuum_analyze_threshold = 1000000);
-- Jobs that were under way when their worker vanished: claimed only to be run at once, never ahead of need.
CREATE TABLE suspect (
    id bigint PRIMARY KEY,
    fence bigint,
    lkey text,
    body bytea NOT NULL
);
CREATE TABLE later (
    id bigint PRIMARY KEY,
    due bigint NOT NULL,
    alone boolean NOT NULL,
    fence bigint,
    lkey text,
    body bytea NOT NULL
);
CREATE INDEX later_due ON later (due, id);
-- One row for all jobs claimed together. Its token is the fence of their attempt.
CREATE TABLE lease (
    token bigint NOT NULL,
    session bigint NOT NULL,
    queue int NOT NULL,
    since bigint NOT NULL,
    ids bigint[] NOT NULL,
    lkeys text[],
    bodies bytea[] NOT NULL,
    done bigint[] NOT NULL DEFAULT '{}',
    cancelled bigint[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (token, session)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
-- Jobs that a transaction of the user's has completed, until their lease ends.
CREATE TABLE finished (token bigint NOT NULL, id bigint NOT NULL, PRIMARY KEY (token, id));
CREATE TABLE session (
    id bigint PRIMARY KEY,
    who text NOT NULL,
    expires bigint NOT NULL,
    idle boolean NOT NULL
) WITH (fillfactor = 20);
CREATE TABLE uniq (
    queue int NOT NULL,
    key text NOT NULL,
    job bigint NOT NULL,
    until bigint NOT NULL,
    PRIMARY KEY (queue, key)
);
-- What has happened, for each queue and each who did it: nobody waits for a counter.
CREATE TABLE tally (
    queue int NOT NULL,
    shard bigint NOT NULL,
    pushed bigint NOT NULL DEFAULT 0,
    done bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    dead bigint NOT NULL DEFAULT 0,
    cancelled bigint NOT NULL DEFAULT 0,
    later bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, shard)
) WITH (fillfactor = 20);
CREATE TABLE dead (id bigint PRIMARY KEY, at bigint NOT NULL, fence bigint, lkey text, body bytea NOT NULL);
CREATE TABLE kept (
    id bigint PRIMARY KEY,
    at bigint NOT NULL,
    until bigint NOT NULL,
    state smallint NOT NULL,
    fence bigint,
    body bytea NOT NULL,
    result bytea
);
CREATE INDEX kept_until ON kept (until);
