-- The operations that run all the time, each in as few calls as it takes, for exclusive leases of ours about which there
-- is nothing unusual. Everything else is slow. What is done here must be what `slow.lua` would have done.

-- Takes a place at the end of the queue behind an exclusive lease of ours; says whether it did.
local function join(token, ttl, value, key, h, q)
  local values = call('MGET', key, h)
  local owner = values[2] and string.match(values[2], '^%a%d+ %d+ %d+ %d+ %d+ ([^\n]*)\n')
  local p = side .. 'p:' .. key
  if not owner or owner ~= values[1] or owner == token or call('HEXISTS', p, token) == 1 then
    return false
  end
  local left = call('PTTL', key)
  if left < 0 then
    return false
  end
  local ahead = call('ZCARD', q)
  local number = call('HINCRBY', p, '!s', 1)
  local length = tonumber(ttl)
  local expires = now + (length < HANDED_MAX_MS and length or HANDED_MAX_MS) * 1000
  call('ZADD', q, number, token)
  call('HSET', p, token, string.format('x 0 %s 1 0 %.0f %.0f %s\n', ttl, now, expires, client) .. value)
  -- Whoever waits keeps the keys alive with each refresh; those who come need not all do so.
  if ahead == 0 or number % 8 == 0 then
    call('PEXPIRE', q, QUEUE_MS)
    call('PEXPIRE', p, QUEUE_MS)
  end
  answer(QUEUED, last_fence(), ahead)
  answer(sub(owner, 34), 'x', 0, left, left)
  return true
end

-- Gives an exclusive lease to the first in the queue, and tells it; says whether it did. Not if that one is dead or wants
-- something else, or if a client of another library has been seen, who must get its chance.
local function pass_on(key, h, q, to)
  local p = side .. 'p:' .. key
  local notes = call('HMGET', p, to, '!f')
  if not notes[1] or handover == 'never' or (notes[2] and handover == 'auto') then
    return false
  end
  local mode, ttl, count, delay, expires, owner, value =
    string.match(notes[1], '^(%a) %d+ (%d+) (%d+) (%d+) %d+ (%d+) (%S+)\n(.*)$')
  if mode ~= 'x' or tonumber(expires) <= now then
    return false
  end
  local given = math.min(tonumber(ttl), HANDED_MAX_MS)
  local first = reserve(tonumber(count))
  call('SET', key, to, 'PX', given)
  call('SET', h, record(delay == '0' and 's' or 'd', ttl, first, count, delay, to, value), 'PX', given + delay)
  call('ZREM', q, to)
  local waiting = call('ZCARD', q)
  if waiting == 0 then
    call('DEL', p)
  else
    call('HDEL', p, to)
  end
  call('PUBLISH', 'leaseward:c:' .. owner,
    string.format('G %.0f %s %d -1 %d ', first, count, given, waiting) .. to .. '\n' .. key)
  return true
end

-- a|q token ttl_ms value: an exclusive lease of one fence, without delay; `q` queues if it is not free.
-- A|Q token ttl_ms value mode capacity count delay_ms: anything else.
local function ask(letter)
  local token, ttl, value, key = ARGV[at], ARGV[at + 1], ARGV[at + 2], next_key()
  local mode, cap, count, delay = 'x', 0, 1, 0
  at = at + 3
  if letter == 65 or letter == 81 then
    mode, cap, count, delay =
      ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
    at = at + 4
  end
  local h, q = side .. 'h:' .. key, side .. 'q:' .. key
  if mode == 'x' and not left_behind and call('EXISTS', key, h, q) == 0 then
    local first = reserve(count)
    local length = delay == 0 and ttl or tonumber(ttl) + delay
    call('SET', key, token, 'PX', ttl)
    call('SET', h, record(delay == 0 and 's' or 'd', ttl, first, count, delay, token, value), 'PX', length)
    return answer(GRANTED, first, count, -1, 0)
  end
  if letter == 113 and join(token, ttl, value, key, h, q) then
    return
  end
  slow().ask({
    token = token, ttl = tonumber(ttl), value = value, mode = mode, cap = cap, count = count, delay = delay,
  }, key, letter == 81 or letter == 113)
end

-- n token ttl_ms count: count further fences if nobody waits.
local function renew()
  local token, ttl, count, key = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), next_key()
  at = at + 3
  local h = side .. 'h:' .. key
  local values = call('MGET', key, h)
  local start = 's' .. ttl .. ' '
  local waiting
  if values[1] == token and values[2] and sub(values[2], 1, #start) == start then
    local left, length = call('PTTL', key), tonumber(ttl)
    if left < length then
      call('PEXPIRE', key, ttl)
      left = length
    end
    -- Written even if it changes nothing: what waits for replicas waits for a write.
    call('PEXPIRE', h, left)
    waiting = call('ZCARD', side .. 'q:' .. key) + (handover == 'never' and 1 or 0)
  else
    waiting = slow().renew(token, tonumber(ttl), key)
    if not waiting then
      return
    end
  end
  if count > 0 and waiting == 0 then
    return answer(RENEWED, waiting, reserve(count), count)
  end
  answer(RENEWED, waiting, 0, 0)
end

-- r token keep_ms: compares the token and nothing else.
local function release()
  local token, keep, key = ARGV[at], ARGV[at + 1], next_key()
  at = at + 2
  local h, q = side .. 'h:' .. key, side .. 'q:' .. key
  if keep == '0' and handover ~= 'never' then
    local values = call('MGET', key, h)
    local letter = values[2] and byte(values[2])
    if values[1] == token and (letter == 115 or letter == 100) then
      local to = call('ZRANGE', q, 0, 0)[1]
      if not to then
        call('DEL', key, h)
        return answer(RELEASED)
      end
      -- A server without memory to spare refuses, before anything has changed.
      local ok, passed = pcall(pass_on, key, h, q, to)
      if ok and passed then
        return answer(RELEASED)
      end
    end
  end
  slow().release(token, tonumber(keep), key)
end
