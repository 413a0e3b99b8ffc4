-- The operations that run all the time, each in as few calls as it takes, for exclusive leases of ours about which there
-- is nothing unusual. Everything else is slow. What is done here must be what `slow.lua` would have done.
-- They take their fields from `ARGV` at `turn.at` and their keys from `KEYS` at `turn.k`.

local function next_key(turn)
  local k = turn.k
  turn.k = k + turn.stride
  return KEYS[k]
end

-- Takes a place at the end of the queue behind an exclusive lease of ours; says whether it did. Not if the first in it has
-- died.
local function join(turn, token, ttl, value, key, h, q)
  local call = redis.call
  local values = call('MGET', key, h)
  local owner, letter = turn.owner(values[1])
  local beside, delay, holder = letter == 'd' and values[2], 0, owner
  if letter == 'd' then
    letter, delay, holder = string.match(beside or '', '^(%a)%d+ %d+ %d+ (%d+) %d+ ([^\n]*)\n')
  end
  if not owner or owner ~= holder or owner == token then
    return false
  end
  local left, first = call('PTTL', key), call('LINDEX', q, 1)
  if first then
    local lasts, seen = string.match(first, '^%a %d+ (%d+) %d+ %d+ %d+ (%d+) ')
    if not seen or seen + math.min(lasts, @HANDED_MAX_MS) * 1000 <= turn.now then
      return false
    end
  end
  if left < 0 or call('LPOS', q, token) then
    return false
  end
  local now = turn.text(turn.now)
  local ahead = call('RPUSH', q, token, 'x 0 ' .. ttl .. ' 1 0 ' .. now .. ' ' .. now .. ' ' .. turn.client .. '\n' .. value)
    / 2 - 1
  if letter == 's' and beside then
    call('SET', h, 'd' .. string.sub(beside, 2), 'PX', math.max(left, 1))
  elseif letter == 's' then
    call('SETRANGE', key, #owner + 1, 'w')
  end
  if ahead == 0 then
    call('PEXPIRE', q, @QUEUE_MS)
    turn.stands_beside(turn, @QUEUE_MS)
  end
  turn.answer(turn, @QUEUED, turn.last_fence(turn), ahead)
  turn.answer(turn, string.sub(owner, 34), 'x', 0, left, letter == 'k' and left or left + delay)
  return true
end

-- Gives an exclusive lease to the first in the queue, and tells it; says whether it did. Not if that one is dead or wants
-- something else.
local function pass_on(turn, key, h, q, to, place)
  local call = redis.call
  local ttl, count, seen, client, value = string.match(place or '', '^x %d+ (%d+) (%d+) 0 %d+ (%d+) (%S+)\n(.*)$')
  if not ttl then
    return false
  end
  local given = math.min(ttl, @HANDED_MAX_MS)
  if seen + given * 1000 <= turn.now then
    return false
  end
  local waiting = call('LLEN', q) / 2 - 1
  local first = turn.reserve(turn, tonumber(count))
  call('SET', key, turn.lease(turn, waiting > 0 and 'w' or 's', to, ttl, first, count, value), 'PX', given)
  call('DEL', h)
  call('LPOP', q, 2)
  -- Who keeps the queue alive: `script.rs` says why that is enough.
  if waiting > 0 and turn.now - seen > turn.now % @WINDOW_US then
    call('PEXPIRE', q, @QUEUE_MS)
    turn.stands_beside(turn, @QUEUE_MS)
  end
  redis.pcall('PUBLISH', 'leaseward:c:' .. client,
    string.format('G %s %s %d -1 %d ', turn.text(first), count, given, waiting) .. to .. '\n' .. key)
  return true
end

-- a|q token ttl_ms value: an exclusive lease of one fence, without delay; `q` queues if it is not free.
-- A|Q token ttl_ms value mode capacity count delay_ms: anything else.
local function ask(turn, letter)
  local call, at, side, key = redis.call, turn.at, turn.side, turn.next_key(turn)
  local token, ttl, value = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local mode, cap, count, delay = 'x', '0', '1', '0'
  turn.at = at + 3
  if letter == 65 or letter == 81 then
    mode, cap, count, delay = ARGV[at + 3], ARGV[at + 4], ARGV[at + 5], ARGV[at + 6]
    turn.at = at + 7
  end
  local h, q = side .. 'h:' .. key, side .. 'q:' .. key
  if mode == 'x' and delay == '0' and not turn.left_behind and call('EXISTS', key, h, q) == 0 then
    local fences = count == '1' and 1 or tonumber(count)
    local first = turn.reserve(turn, fences)
    -- Asking for the value before, which is none, is cheaper than being answered that it is all right.
    call('SET', key, turn.lease(turn, 's', token, ttl, first, count, value), 'PX', ttl, 'GET')
    if fences > 1 then
      return turn.answer(turn, @GRANTED, first, fences, -1, 0)
    end
    local out, n = turn.out, turn.n
    out[n + 1], out[n + 2] = @PLAIN, first
    turn.n = n + 2
    return
  end
  if letter == 113 and turn.join(turn, token, ttl, value, key, h, q) then
    return
  end
  turn.slow(turn).ask({
    token = token, ttl = tonumber(ttl), value = value, mode = mode, cap = tonumber(cap), count = tonumber(count),
    delay = tonumber(delay),
  }, key, letter == 81 or letter == 113)
end

-- n token ttl_ms
local function renew(turn)
  local call, at, key = redis.call, turn.at, turn.next_key(turn)
  local token, ttl = ARGV[at], ARGV[at + 1]
  turn.at = at + 2
  local h = turn.side .. 'h:' .. key
  local values = call('MGET', key, h)
  local held, beside = values[1] or '', values[2] or ''
  local sound = 's' .. ttl .. ' '
  local start, changed = token .. '\n' .. sound, token .. '\nd'
  local waiting
  if string.sub(held, 1, #start) == start
    or string.sub(held, 1, #changed) == changed and string.sub(beside, 1, #sound) == sound then
    -- Written whatever comes of it: what waits for replicas waits for a write.
    call('PEXPIRE', key, ttl)
    if call('PEXPIRE', h, ttl) == 1 then
      turn.stands_beside(turn, tonumber(ttl))
    end
    waiting = turn.handover == 'never' and 1 or 0
  else
    waiting = turn.slow(turn).renew(token, tonumber(ttl), key)
    if not waiting then
      return
    end
  end
  turn.answer(turn, @RENEWED, waiting)
end

-- r token keep_ms: compares the token and nothing else.
local function release(turn)
  local call, at, side, key = redis.call, turn.at, turn.side, turn.next_key(turn)
  local token, keep = ARGV[at], ARGV[at + 1]
  turn.at = at + 2
  local h = side .. 'h:' .. key
  if keep == '0' and turn.handover ~= 'never' then
    local values = call('MGET', key, h)
    local owner, letter = turn.owner(values[1])
    if letter == 'd' then
      letter = string.sub(values[2] or '', 1, 1)
    end
    if owner == token and (letter == 's' or letter == 'w' or letter == 'd') then
      local q = side .. 'q:' .. key
      local to = letter ~= 's' and call('LRANGE', q, 0, 1)
      if not to or not to[1] then
        call('DEL', key, h)
        return turn.answer(turn, @RELEASED)
      end
      -- A server without memory to spare refuses, before anything has changed.
      local ok, passed = pcall(turn.pass_on, turn, key, h, q, to[1], to[2])
      if ok and passed then
        return turn.answer(turn, @RELEASED)
      end
    end
  end
  turn.slow(turn).release(token, tonumber(keep), key)
end
