-- Attempts that were interrupted, and do not count.
ALTER TABLE tally ADD COLUMN interrupted bigint NOT NULL DEFAULT 0;
-- Another column makes another answer.
DROP FUNCTION IF EXISTS stats();
