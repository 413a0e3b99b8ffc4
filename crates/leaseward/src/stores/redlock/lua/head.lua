-- What one node of a quorum does: a batch of operations in one call. It decides alone, by its own memory and clock; what
-- follows from several nodes' answers is decided by the client.
--
-- KEYS       lock keys, in the order in which the operations name them
-- ARGV[1]    for a node that has lost its memory: ballots up to here may have been granted before it did
-- ARGV[2..]  operations: a letter, then its fields
--
-- A name has up to three keys. The lock key is what every Redlock library has: a string, the owner's token, with an
-- expiry; nothing else. Beside it:
--   leaseward:b:<key>  the ballot: the newest block granted for this name, by whom and how. It outlives the lock until
--                      the clock has passed the end of the block by an allowance; so a ballot is never granted twice,
--                      neither while it is remembered nor when it is so old that it is refused for that.
--   leaseward:r:<key>  a hash: token -> record, for readers. The lock key then holds the placeholder.
--
-- Microseconds are texts of 16 digits, which stand in records at fixed places:
--   ballot  END(16) LETTER FIRST(16) ' ' TTL_MS ' ' UNTIL(16) ' ' DELAY_MS ' ' SINCE(16) ' ' TOKEN '\n' VALUE
--   reader  END(16) LETTER FIRST(16) ' ' TTL_MS ' ' EXPIRES(16) ' ' DELAY_MS ' ' SINCE(16) '\n' VALUE
-- Letters: 's' sound and nothing to look at; 'd' sound, but it asked for a delay or lasts longer than its TTL, and UNTIL
-- says when the name is free if it is not released; 'b' broken; 'k' kept for its minimum hold.

-- Adds to the answers of this call, which stand one behind the other: a code, then its fields.
local function answer(turn, ...)
  local out, n = turn.out, turn.n
  for i = 1, select('#', ...) do
    out[n + i] = (select(i, ...))
  end
  turn.n = n + select('#', ...)
end

local function next_key(turn)
  local k = turn.k
  turn.k = k + 1
  return KEYS[k]
end

-- How long a ballot is remembered, in milliseconds: until the clock has passed its end by the allowance, and longer than
-- the lease.
local function memory(turn, last, ms)
  local ahead = (last - turn.now) / 1000
  return math.ceil((ahead > 0 and ahead or 0) + ms) + @ALLOWANCE_MS
end
