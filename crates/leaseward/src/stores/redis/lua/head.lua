-- One call carries out a batch of operations. Compiled with the other files of this folder into one script.
--
-- KEYS[1]    the fence counter of this database, or of this slot of a cluster
-- KEYS[2..]  lock keys, in the order in which the operations name them; on a cluster each with its side keys behind it
-- ARGV[1]    the beginning of side keys, in the slot of the lock keys
-- ARGV[2]    the client: the end of the channel to which its pushes go
-- ARGV[3]    how leases are handed over: auto, always, never
-- ARGV[4]    how many keys stand in KEYS for each lock key
-- ARGV[5..]  operations: a letter, then the fields of `operations.lua`
--
-- A name has up to four keys. The lock key is what every library of that layout has: a string with an expiry, set if it is
-- not there and deleted by whoever knows the token. It begins with that; in the line behind it are a letter, the TTL, the
-- fence, how many there are, and since when it is held; behind that what its holder wants to be known. So a lease is one key,
-- as theirs are. The letter: 's' sound, and nothing to look at; 'w' somebody has queued behind it; 'd' more is to be known
-- of it, and stands beside it. Nothing else in it changes. Beside it, only while they are needed:
--   h:<key>  an exclusive lease with the letter 'd': its record, a string. Readers and permits: a hash of token -> record. The
--            lock key then holds the placeholder, for as long as the longest of them lasts.
--   q:<key>  a list, the queue: of each place the token, then its record, so that one call takes the next one out
--   p:<key>  a hash: notes about clients of other libraries, while nobody of ours has an exclusive lease to keep them
-- While any name of the database, or of the slot, has an `h` or a `q`, there is one key `beside` that says so: most of the
-- time there is none, and then `plain.lua` need not look for those of each name that is asked for.
--
-- Functions are made anew by every call of the script, and each variable of the surroundings that one uses makes that
-- dearer. So none uses any: what a call knows is in one table, `turn`, which is passed on, and constants, written `@NAME`,
-- are put in before the script is sent. What does not run all the time (`room.lua`, `slow.lua`) is made when it is needed.

-- Adds to the answers of this call, which stand one behind the other: a code, then its fields, up to five at a time.
-- Flat, because that is cheapest on both sides; what is nil is overwritten by the next.
local function answer(turn, a, b, c, d, e)
  local out, n = turn.out, turn.n
  out[n + 1], out[n + 2], out[n + 3], out[n + 4], out[n + 5] = a, b, c, d, e
  turn.n = n + (e ~= nil and 5 or d ~= nil and 4 or c ~= nil and 3 or b ~= nil and 2 or 1)
end

-- An `h` or a `q` lasts for so many milliseconds from now: the end of the call (`tail.lua`) sees to it that `beside` does.
local function stands_beside(turn, ms)
  if ms > turn.beside_ms then
    turn.beside_ms = ms
  end
end

-- Microseconds as text. In halves: numbers are floating here, which take long to print whole, and an integer may have no
-- more than 32 bits where Redis runs on Windows.
local function text(micros)
  local low = micros % 10000000
  return string.format('%d%07d', (micros - low) / 10000000, low)
end

-- The newest fence given out; read when first needed. If there is something else, it is the clock's, below which none is
-- given out.
local function last_fence(turn)
  if not turn.last then
    local newest = redis.call('GET', KEYS[1])
    turn.last = not newest and 0 or #newest <= @FENCE_DIGITS and tonumber(string.match(newest, '^%d+$')) or turn.now
  end
  return turn.last
end

-- Reserves fences: above all given out before, and not below the clock, so that a server that lost its memory does not
-- give them out again. The first of a call is written at once: where writing is refused, no lease is given either.
local function reserve(turn, count)
  local first = (turn.last or turn.last_fence(turn)) + 1
  if first < turn.now then
    first = turn.now
  end
  turn.last = first + count - 1
  if turn.is_written then
    turn.is_ahead = true
  else
    redis.call('SET', KEYS[1], turn.text(turn.last))
    turn.is_written = true
  end
  return first
end

-- What the lock key of a new exclusive lease holds. All fields but the fence are texts.
local function lease(turn, letter, token, ttl, first, count, value)
  local now = turn.now_text
  if not now then
    now = turn.text(turn.now)
    turn.now_text = now
  end
  local low = first % 10000000
  return token .. string.format('\n%s%s %d%07d %s %s\n', letter, ttl, (first - low) / 10000000, low, count, now) .. value
end

-- Whose an exclusive lease of ours is, by what its lock key holds, and its letter; nothing if it is none of ours.
local function owner(held)
  local token, letter, before = string.match(held or '', '^(@TOKEN)\n([swd])%d+ %d+(%S*) %d+ %d+\n')
  if token and (#before == 0 or #before == 2) then
    return token, letter
  end
end
