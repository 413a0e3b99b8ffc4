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
-- A name has up to four keys. The lock key is what every library of that layout has: a string, the owner's token, with
-- an expiry; nothing else. Beside it, only while they are needed:
--   h:<key>  an exclusive lease: its record, a string; readers and permits: a hash of token -> record. The lock key
--            then holds the placeholder, for as long as the longest of them lasts.
--   q:<key>  a sorted set, the queue: token -> number of its place
--   p:<key>  a hash: token -> record of its place, and notes about the queue, whose names begin with '!'
--
-- Whatever runs often is written out here, in as few calls as it takes; the rest is in `room.lua` and only made into
-- functions when it is needed, because every call of the script would pay for making them.

local PLACEHOLDER = 'leaseward:held-by-several'

local call, byte, sub = redis.call, string.byte, string.sub
local side, client, handover, stride = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local time = call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

-- The answers, one behind the other: a code, then its fields, up to five at a time. Flat, because that is cheapest on
-- both sides; what is nil is overwritten by the next.
local out, n = {}, 0
local function answer(a, b, c, d, e)
  out[n + 1], out[n + 2], out[n + 3], out[n + 4], out[n + 5] = a, b, c, d, e
  n = n + (e ~= nil and 5 or d ~= nil and 4 or c ~= nil and 3 or b ~= nil and 2 or 1)
end

local GRANTED, GRANTED_ALL, QUEUED, BUSY, RENEWED, RELEASED, NOT_YOURS, GONE, CAPACITY, FAILED, DONE =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
local EXPIRED, NOT_OURS, BROKEN = 1, 2, 3

-- A place lasts min(ttl, this) after its last ask, and so does a lease that was handed over until its first renewal.
local HANDED_MAX_MS = 10000

-- The queue's keys outlive the last place in them by this much at most, should all who wait vanish.
local QUEUE_MS = 2 * HANDED_MAX_MS

-- By key: what was known of clients of other libraries on a name that was released in this call, with nobody waiting.
local left_behind

-- The newest fence given out; read when first needed.
local last, is_written, is_ahead
local function last_fence()
  if not last then
    last = tonumber(call('GET', KEYS[1]) or 0)
  end
  return last
end

-- Reserves fences: above all given out before, and not below the clock, so that a server that lost its memory does not
-- give them out again. The first of a call is written at once: where writing is refused, no lease is given either.
local function reserve(count)
  local first = last_fence() + 1
  if first < now then
    first = now
  end
  last = first + count - 1
  if is_written then
    is_ahead = true
  else
    call('SET', KEYS[1], string.format('%.0f', last))
    is_written = true
  end
  return first
end

-- The record of an exclusive lease. 's' is sound, 'd' sound with a delay, 'b' broken, 'k' kept for its minimum hold.
-- Letter and TTL come first: one comparison tells a renewal that there is nothing to look at.
local function record(letter, ttl, first, count, delay, token, value)
  return letter .. ttl .. ' ' .. string.format('%.0f', first) .. ' ' .. count .. ' ' .. delay .. ' '
    .. string.format('%.0f', now) .. ' ' .. token .. '\n' .. value
end

-- Operations take their fields from `ARGV` at `at` and their keys from `KEYS` at `k`.
local at, k = 5, 2
local function next_key()
  k = k + stride
  return KEYS[k - stride]
end
