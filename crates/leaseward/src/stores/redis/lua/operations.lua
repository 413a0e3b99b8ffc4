-- The operations. Each takes its fields from `ARGV` at `at` and its key from `KEYS` at `k`, and answers.
local at, k = 5, 2

local function next_key()
  k = k + stride
  return KEYS[k - stride]
end

local function ask_slowly(ask, key, may_queue)
  local l = lib()
  local room = l.enter(key)
  local hold = l.find(room, ask.token)
  if hold then
    local reason = l.refuses(hold)
    if reason then
      return answer(GONE, reason)
    end
    hold.expires = math.max(hold.expires, now + ask.ttl * 1000)
    hold.ttl = ask.ttl
    l.keep(room, hold)
    return answer(GRANTED, hold.first, hold.count, hold.slot, l.waiters(room))
  end
  if ask.mode == 'p' then
    for _, other in ipairs(room.holds) do
      if other.mode == 'p' and other.cap ~= ask.cap then
        l.drop_place(room, ask.token)
        return answer(CAPACITY, other.cap)
      end
    end
  end
  local fence = last_fence()
  local place, ahead = l.place(room, ask.token)
  if place then
    l.keep_place(room, ask, place.since)
    return l.standing(room, QUEUED, ahead, fence)
  end
  local waiting = l.waiters(room)
  if waiting == 0 and l.admits(room, ask.mode, ask.cap) then
    local given = l.grant(room, ask, ask.ttl)
    return answer(GRANTED, given.first, given.count, given.slot, 0)
  end
  if not may_queue then
    return l.standing(room, BUSY, waiting)
  end
  l.keep_place(room, ask)
  l.standing(room, QUEUED, waiting, fence)
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
  local h = side .. 'h:' .. key
  if mode == 'x' and call('EXISTS', key, h, side .. 'q:' .. key) == 0 then
    local first = reserve(count)
    local length = delay == 0 and ttl or tonumber(ttl) + delay
    call('SET', key, token, 'PX', ttl)
    call('SET', h, record(delay == 0 and 's' or 'd', ttl, first, count, delay, token, value), 'PX', length)
    return answer(GRANTED, first, count, -1, 0)
  end
  ask_slowly({
    token = token, ttl = tonumber(ttl), value = value, mode = mode, cap = cap, count = count, delay = delay,
  }, key, letter == 81 or letter == 113)
end

-- m token ttl_ms value mode capacity count delay_ms names: all names or none; never queues.
local function ask_all()
  local l = lib()
  local wish = {
    token = ARGV[at], ttl = tonumber(ARGV[at + 1]), value = ARGV[at + 2], mode = ARGV[at + 3],
    cap = tonumber(ARGV[at + 4]), count = tonumber(ARGV[at + 5]), delay = tonumber(ARGV[at + 6]),
  }
  local names = tonumber(ARGV[at + 7])
  at = at + 8
  local keys, rooms = {}, {}
  for i = 1, names do
    keys[i] = next_key()
  end
  for i = 1, names do
    local room = l.enter(keys[i])
    local hold = l.find(room, wish.token)
    local is_ours = hold and not l.refuses(hold)
    local waiting = l.waiters(room)
    if not is_ours and (waiting > 0 or not l.admits(room, wish.mode, wish.cap)) then
      return l.standing(room, BUSY, waiting)
    end
    rooms[i] = room
  end
  local given = {}
  for i = 1, names do
    local hold = l.find(rooms[i], wish.token)
    if hold then
      hold.expires = math.max(hold.expires, now + wish.ttl * 1000)
      l.keep(rooms[i], hold)
    else
      hold = l.grant(rooms[i], wish, wish.ttl)
    end
    given[i] = hold
  end
  answer(GRANTED_ALL, names)
  for i = 1, names do
    answer(given[i].first, given[i].count)
  end
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
    local l = lib()
    local room = l.enter(key)
    local hold = l.find(room, token)
    if not hold then
      return answer(NOT_YOURS, NOT_OURS)
    end
    local reason = l.refuses(hold)
    if reason then
      return answer(NOT_YOURS, reason)
    end
    hold.ttl = tonumber(ttl)
    hold.expires = math.max(hold.expires, now + hold.ttl * 1000)
    l.keep(room, hold)
    waiting = l.waiters(room)
  end
  if count > 0 and waiting == 0 then
    return answer(RENEWED, waiting, reserve(count), count)
  end
  answer(RENEWED, waiting, 0, 0)
end

-- A server without memory to spare gives nobody anything, but it takes back what it is given.
local function hand_over(room)
  local l = lib()
  pcall(l.leave_open, room)
  if not pcall(l.settle, room) then
    call('DEL', room.key, room.h)
  end
end

local function release_slowly(token, keep, key)
  local l = lib()
  local room = l.enter(key)
  local hold, number = l.find(room, token)
  if hold then
    if hold.letter == 'k' then
      return answer(RELEASED)
    end
    local was_live = hold.expires > now
    if was_live and keep > 0 then
      hold.letter = 'k'
      hold.expires = now + keep * 1000
      l.keep(room, hold)
      return answer(RELEASED)
    end
    l.remove(room, number)
    hand_over(room)
    if was_live then
      return answer(RELEASED)
    end
    -- Within its delay: it had ended, but its holder came back to say so.
    return answer(NOT_YOURS, EXPIRED)
  end
  if l.drop_place(room, token) then
    hand_over(room)
    return answer(RELEASED)
  end
  if room.foreign and room.foreign.value == token then
    -- Ours, but its record is gone: deleted by hand, or evicted.
    call('DEL', key)
    room.foreign = nil
    hand_over(room)
    return answer(RELEASED)
  end
  answer(NOT_YOURS, NOT_OURS)
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
  release_slowly(token, tonumber(keep), key)
end
