-- Pushing is told whether it is to tell others: other arguments make another function.
DROP FUNCTION IF EXISTS push(bigint, bigint[], bytea[], int[], bigint[]);
DROP FUNCTION IF EXISTS push_any(bigint, bigint[], bytea[], bigint[], text[], text[], bigint[]);
