-- What one node of a quorum does: a batch of operations in one call. It decides alone, by its own memory and clock; what
-- follows from several nodes' answers is decided by the client. This is the careful script; `plain.lua` does the usual.
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
-- Microseconds are texts of 16 digits, which stand in records at fixed places and compare as texts do:
--   ballot  END(16) LETTER FIRST(16) UNTIL(16) ' ' TTL_MS ' ' DELAY_MS ' ' TOKEN '\n' VALUE
--   reader  END(16) LETTER FIRST(16) UNTIL(16) ' ' TTL_MS ' ' DELAY_MS '\n' VALUE
-- Letters: 's' sound and nothing to look at; 'd' sound, but it asked for a delay or lasts longer than its TTL; 'b' broken;
-- 'k' kept for its minimum hold. UNTIL is when the lease of a reader ends, and for 'd' and 'b' when the name is free if
-- the lease is not released.
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local out, n, k, at = { now }, 1, 1, 2
local forgot = tonumber(ARGV[1])
-- Without a memory of a name, ballots are refused that may have been granted and forgotten since.
local floor = math.max(forgot, now - @ALLOWANCE_MS * 1000)

-- Adds to the answers of this call, which stand one behind the other: a code, then its fields.
local function answer(...)
  for i = 1, select('#', ...) do
    out[n + i] = (select(i, ...))
  end
  n = n + select('#', ...)
end

local function next_key()
  k = k + 1
  return KEYS[k - 1]
end

local function next_field()
  at = at + 1
  return ARGV[at - 1]
end

-- How long a ballot is remembered, in milliseconds: until the clock has passed its end by the allowance, and longer than
-- the lease.
local function memory(last, ms)
  local ahead = (last - now) / 1000
  return math.ceil((ahead > 0 and ahead or 0) + ms) + @ALLOWANCE_MS
end

local function text(micros)
  local low = micros % 100000000
  return string.format('%08d%08d', (micros - low) / 100000000, low)
end

local function ms_until(moment)
  local left = math.ceil((moment - now) / 1000)
  return left > 1 and left or 1
end

-- Nothing, if it is something else.
local function read(record, is_reader)
  local last, letter, first, till = string.match(record, '^(%d+)(%a)(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d)(%d+) ')
  local rest = is_reader and '^(%d+) (%d+)()\n(.*)$' or '^(%d+) (%d+) ([^\n]*)\n(.*)$'
  local ttl, delay, token, value = string.match(string.sub(record, 51), rest)
  return last and ttl and {
    last = tonumber(last), letter = letter, first = tonumber(first), ttl = tonumber(ttl), till = tonumber(till),
    delay = tonumber(delay), token = token, value = value,
  }
end

local function write(hold, is_reader)
  local record = text(hold.last) .. hold.letter .. text(hold.first) .. text(hold.till) .. ' ' .. hold.ttl .. ' ' .. hold.delay
  return record .. (is_reader and '' or ' ' .. hold.token) .. '\n' .. hold.value
end

-- A name with everything that is known about it. `owner` is who holds it alone, `readers` those who share it.
local function room(key)
  local room = { key = key, b = 'leaseward:b:' .. key, r = 'leaseward:r:' .. key, readers = {} }
  local values = call('MGET', key, room.b)
  room.owner, room.ballot = values[1], values[2] and read(values[2])
  room.is_garbled = values[2] and not room.ballot
  if not room.owner then
    local kind = call('TYPE', key).ok
    room.stranger = kind ~= 'none' and kind
  end
  if room.owner == @PLACEHOLDER then
    room.owner = false
    local fields = call('HGETALL', room.r)
    for i = 1, #fields, 2 do
      local reader = read(fields[i + 1], true)
      reader.token = fields[i]
      if reader.till + (reader.letter == 'k' and 0 or reader.delay * 1000) > now then
        room.readers[#room.readers + 1] = reader
      else
        call('HDEL', room.r, fields[i])
      end
    end
    if #room.readers == 0 then
      call('DEL', key, room.r)
    end
  elseif room.owner and not (room.ballot and room.ballot.token == room.owner) then
    room.stranger = 'string'
  end
  return room
end

-- The end of what this node may have granted for the name. What it remembers may be from before it lost its memory: a
-- snapshot of its disk is older than its last votes.
local function bar(room)
  return room.ballot and math.max(room.ballot.last, forgot) or floor
end

-- For a lease that lasts so long yet, if that is not its TTL.
local function remember(room, ballot, lasts)
  room.ballot = ballot
  call('SET', room.b, write(ballot), 'PX', memory(ballot.last, (lasts or ballot.ttl) + ballot.delay))
end

-- The placeholder lasts as long as the longest of the readers.
local function hold_for_readers(room)
  local till = 0
  for _, reader in ipairs(room.readers) do
    local free = reader.till + (reader.letter == 'k' and 0 or reader.delay * 1000)
    till = free > till and free or till
  end
  if till == 0 then
    call('DEL', room.key, room.r)
  else
    call('SET', room.key, @PLACEHOLDER, 'PX', ms_until(till))
    call('PEXPIRE', room.r, ms_until(till))
  end
end

local function reader_of(room, token)
  for i, reader in ipairs(room.readers) do
    if reader.token == token then
      return reader, i
    end
  end
end

-- Who is in the way: enough of its token to tell it from others, who it is, how it holds, how long yet, and when the
-- name is free.
local function busy(room)
  if room.stranger then
    local left = call('PTTL', room.key)
    return answer(@BUSY, string.sub(room.owner or '', 1, 8), '!' .. room.stranger, 'x', left, left)
  end
  local mode, hold, left, free = 'x', room.ballot, 0, nil
  if room.owner then
    left = call('PTTL', room.key)
    free = left + (hold.letter == 'k' and 0 or hold.delay)
  elseif #room.readers > 0 then
    mode = 's'
    for _, reader in ipairs(room.readers) do
      local wait = ms_until(reader.till + (reader.letter == 'k' and 0 or reader.delay * 1000))
      if not free or wait < free then
        hold, free, left = reader, wait, ms_until(reader.till)
      end
    end
  else
    free = ms_until(hold.till)
  end
  -- Readers are one obstacle, whichever of them a node names.
  local whose = mode == 's' and 'readers' or string.sub(hold.token, 1, 8)
  answer(@BUSY, whose, string.sub(hold.token, 34), mode, left, free)
end

-- Whether the name is free for this ask: 'yes', 'mine', 'low', 'busy', or 'gone', and why.
local function admits(room, it)
  local reader = reader_of(room, it.token)
  local mine = reader or (room.owner == it.token and room.ballot)
  if mine then
    if mine.letter == 'b' then
      return 'gone', @BROKEN
    end
    if mine.letter == 'k' then
      return 'gone', @NOT_OURS
    end
    if reader and reader.till <= now then
      return 'gone', @EXPIRED
    end
    return 'mine'
  end
  if room.owner or room.stranger or (#room.readers > 0 and it.mode ~= 's') then
    return 'busy'
  end
  local ballot = room.ballot
  if #room.readers == 0 and ballot and ballot.letter ~= 's' and ballot.letter ~= 'k' and ballot.till > now then
    return 'busy'
  end
  if room.is_garbled then
    -- It may be anything, a lock of somebody who has another prefix too.
    error({ err = 'WRONGTYPE no ballot' })
  end
  return it.first > bar(room) and 'yes' or 'low'
end

-- Lengthens a lease; never shortens it.
local function lengthen(room, token, ttl)
  local reader = reader_of(room, token)
  if reader then
    local till = now + ttl * 1000
    reader.till, reader.ttl = till > reader.till and till or reader.till, ttl
    call('HSET', room.r, token, write(reader, true))
    hold_for_readers(room)
    return reader
  end
  local hold, left = room.ballot, call('PTTL', room.key)
  local lasts = left > ttl and left or ttl
  hold.ttl, hold.till = ttl, now + (lasts + hold.delay) * 1000
  hold.letter = (hold.delay > 0 or lasts > ttl) and 'd' or 's'
  call('PEXPIRE', room.key, lasts)
  remember(room, hold, lasts)
  return hold
end

local function grant(room, it)
  -- Larger than the block only where a lease is put back: what was refused before is refused afterwards.
  local highest = math.max(it.last, bar(room))
  local hold = {
    last = it.last, first = it.first, letter = 's', ttl = it.ttl, delay = it.delay, token = it.token, value = it.value,
    till = now + it.ttl * 1000,
  }
  if it.mode == 's' then
    room.readers[#room.readers + 1] = hold
    call('HSET', room.r, it.token, write(hold, true))
    hold_for_readers(room)
    remember(room, {
      last = highest, first = it.first, letter = 's', ttl = it.ttl, delay = it.delay, token = '', value = '', till = 0,
    })
    return
  end
  if it.delay > 0 then
    hold.letter, hold.till = 'd', hold.till + it.delay * 1000
  end
  call('SET', room.key, it.token, 'PX', it.ttl)
  hold.last = highest
  remember(room, hold)
end
