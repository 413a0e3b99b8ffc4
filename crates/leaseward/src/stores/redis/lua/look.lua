-- What is held and who waits, for people; and breaking leases.

-- Nobody reads through more, and Lua cannot pass on many more at once.
local SHOWN_MAX = 1000

-- A name as it stands: the time, kind of key, its time, its value, the record or records beside it, and the
-- queue with its records. Read without changing anything, so that a look never hands a lease over.
local function look()
  local key = next_key()
  local h, q, p = side .. 'h:' .. key, side .. 'q:' .. key, side .. 'p:' .. key
  local kind = call('TYPE', key).ok
  local beside = call('TYPE', h).ok
  local value = kind == 'string' and call('GET', key) or ''
  local owner = ''
  if kind == 'hash' then
    owner = call('HKEYS', key)[1] or ''
  end
  local records = {}
  if beside == 'hash' then
    records = call('HGETALL', h)
  elseif beside == 'string' then
    local record = call('GET', h)
    records = { '', string.match(record, '^f%d+ %d+ (.*)$') or record }
  end
  local places = call('ZRANGE', q, 0, SHOWN_MAX - 1)
  local texts = #places > 0 and call('HMGET', p, unpack(places)) or {}
  answer(now, kind, call('PTTL', key), value == PLACEHOLDER and '' or value, owner)
  answer(records, places, texts)
end

-- x how: ends leases against their holders' will; at once, or by refusing renewals.
local function break_lease()
  local is_now, key = ARGV[at] == 'now', next_key()
  at = at + 1
  local l = lib()
  local room = l.enter(key)
  if room.foreign then
    -- Another library's lease cannot be told to end; it can be deleted.
    if not is_now then
      return answer(BUSY)
    end
    call('DEL', key)
    room.foreign = nil
    l.settle(room)
    return answer(RELEASED)
  end
  for _, hold in ipairs(room.holds) do
    hold.letter = 'b'
    if not is_now then
      l.keep(room, hold)
    end
  end
  if is_now and #room.holds > 0 then
    call('DEL', key, room.h)
    room.holds = {}
    l.settle(room)
  end
  answer(RELEASED)
end
