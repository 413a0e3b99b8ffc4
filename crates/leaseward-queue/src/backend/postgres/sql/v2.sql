-- Limits: how many jobs of a queue, and of a key within it, run at once.
ALTER TABLE queues ADD COLUMN lim int, ADD COLUMN key_lim int NOT NULL DEFAULT 1,
    ADD COLUMN running int NOT NULL DEFAULT 0;
ALTER TABLE lease ADD COLUMN counted boolean NOT NULL DEFAULT false;
CREATE TABLE keys (
    queue int NOT NULL,
    lkey text NOT NULL,
    running int NOT NULL,
    PRIMARY KEY (queue, lkey)
) WITH (fillfactor = 50);
-- Jobs whose key is at its limit: out of the way until one of the key ends.
CREATE TABLE blocked (
    id bigint PRIMARY KEY,
    queue int NOT NULL,
    lkey text NOT NULL,
    fence bigint,
    body bytea NOT NULL
);
CREATE INDEX blocked_key ON blocked (queue, lkey, id);
ALTER TABLE tally ADD COLUMN blocked bigint NOT NULL DEFAULT 0;
CREATE TABLE progress (id bigint PRIMARY KEY, fence bigint NOT NULL, at bigint NOT NULL, value bytea NOT NULL);
CREATE TABLE cron (name text PRIMARY KEY, last bigint NOT NULL);
