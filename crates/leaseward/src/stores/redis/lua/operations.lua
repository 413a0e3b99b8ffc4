-- The operations that run all the time: each in as few calls as it takes, if the name is held by nobody or by whoever
-- asks, alone and with nobody waiting. Everything else is slow.

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
  local h = side .. 'h:' .. key
  if mode == 'x' and call('EXISTS', key, h, side .. 'q:' .. key) == 0 then
    local first = reserve(count)
    local length = delay == 0 and ttl or tonumber(ttl) + delay
    call('SET', key, token, 'PX', ttl)
    call('SET', h, record(delay == 0 and 's' or 'd', ttl, first, count, delay, token, value), 'PX', length)
    return answer(GRANTED, first, count, -1, 0)
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
    waiting = call('ZCARD', side .. 'q:' .. key)
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
  local h = side .. 'h:' .. key
  if keep == '0' then
    local values = call('MGET', key, h)
    local letter = values[2] and byte(values[2])
    if values[1] == token and (letter == 115 or letter == 100) and call('EXISTS', side .. 'q:' .. key) == 0 then
      call('DEL', key, h)
      return answer(RELEASED)
    end
  end
  slow().release(token, tonumber(keep), key)
end
