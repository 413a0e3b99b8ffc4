-- Names are compared byte by byte, as the library does. Times are microseconds since the epoch by the database's clock.
-- `mode` is 0 for exclusive, -1 for shared, else the capacity of a semaphore. `condition` is 0 for sound, 1 for broken,
-- 2 for kept (given back within its minimum hold).

-- One row: what is left of names that nobody has used for an hour.
CREATE TABLE meta (
    id boolean PRIMARY KEY DEFAULT true CHECK (id),
    version int NOT NULL,
    -- The largest fence of all names that were forgotten: a name that is met for the first time begins above it.
    floor bigint NOT NULL DEFAULT 0,
    -- The last name that was swept.
    swept text COLLATE "C" NOT NULL DEFAULT ''
);

-- A name: whoever changes anything about it holds this row. An exclusive lease stands in it, so that taking and giving
-- back are updates in place (HOT: nothing but the name is indexed, and pages are half empty).
CREATE TABLE leases (
    name text COLLATE "C" PRIMARY KEY,
    -- The newest fence given out, the same as in `fences`.
    last bigint NOT NULL,
    token bytea,
    who text,
    first bigint,
    len int,
    condition smallint,
    ttl_us bigint,
    delay_us bigint,
    since_us bigint,
    expires_us bigint,
    value bytea,
    -- How many rows of this name there are in `shares` and in `places`, dead ones included.
    sharers int NOT NULL DEFAULT 0,
    waiters int NOT NULL DEFAULT 0,
    -- The number of the last place.
    seq bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Apart from the lease, so that a transaction that writes under a lease can hold this row FOR SHARE: no new lease is
-- given until it ends, while renewals go on. Whoever has a fence below `first` has been followed by somebody else.
CREATE TABLE fences (
    name text COLLATE "C" PRIMARY KEY,
    first bigint NOT NULL,
    last bigint NOT NULL
) WITH (fillfactor = 50);

-- Readers and permits.
CREATE TABLE shares (
    name text COLLATE "C" NOT NULL,
    token bytea NOT NULL,
    who text NOT NULL,
    mode int NOT NULL,
    first bigint NOT NULL,
    slot int,
    condition smallint NOT NULL,
    ttl_us bigint NOT NULL,
    delay_us bigint NOT NULL,
    since_us bigint NOT NULL,
    expires_us bigint NOT NULL,
    value bytea,
    PRIMARY KEY (name, token)
) WITH (fillfactor = 70);

-- The queues.
CREATE TABLE places (
    name text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    token bytea NOT NULL,
    who text NOT NULL,
    mode int NOT NULL,
    ttl_us bigint NOT NULL,
    delay_us bigint NOT NULL,
    block int NOT NULL,
    -- Whom to tell.
    client bigint NOT NULL,
    since_us bigint NOT NULL,
    expires_us bigint NOT NULL,
    value bytea,
    PRIMARY KEY (name, seq),
    UNIQUE (name, token)
) WITH (fillfactor = 70);

-- What is answered to an operation; `code` is one of `answers::code`.
CREATE TYPE answer AS (
    op int,
    code smallint,
    first bigint,
    len int,
    slot int,
    waiters int,
    who text,
    mode int,
    left_us bigint,
    free_us bigint,
    name text,
    token bytea
);
