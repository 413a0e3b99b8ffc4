-- What does not run all the time: names that are held, waited for, shared, looked at or broken.
local function slow_operations(turn)
  local l, ops = turn.library(turn), {}
  local call, now, side, client, handover = redis.call, turn.now, turn.side, turn.client, turn.handover

  local function answer(...)
    turn.answer(turn, ...)
  end

  function ops.ask(ask, key, may_queue)
    local room = l.enter(key)
    local hold = l.find(room, ask.token)
    if hold then
      local reason = l.refuses(hold)
      if reason then
        return answer(@GONE, reason)
      end
      hold.expires = math.max(hold.expires, now + ask.ttl * 1000)
      hold.ttl = ask.ttl
      l.keep(room, hold)
      return answer(@GRANTED, hold.first, hold.count, hold.slot, l.waiters(room))
    end
    if ask.mode == 'p' then
      for _, other in ipairs(room.holds) do
        if other.mode == 'p' and other.cap ~= ask.cap then
          l.drop_place(room, ask.token)
          return answer(@CAPACITY, other.cap)
        end
      end
    end
    local fence = turn.last_fence(turn)
    local place, at = l.place(room, ask.token)
    if place then
      l.keep_place(room, ask, place, at)
      return l.standing(room, @QUEUED, at / 2, fence)
    end
    local waiting = l.waiters(room)
    if waiting == 0 and not room.open and l.admits(room, ask.mode, ask.cap) then
      local given = l.grant(room, ask, ask.ttl)
      return answer(@GRANTED, given.first, given.count, given.slot, 0)
    end
    if not may_queue then
      return l.standing(room, @BUSY, waiting)
    end
    l.keep_place(room, ask)
    if waiting == 0 and room.open and handover == 'never' then
      l.wake(room, client)
    end
    l.standing(room, @QUEUED, waiting, fence)
  end

  -- Answers only if it fails; else says how many wait.
  function ops.renew(token, ttl, key)
    local room = l.enter(key)
    local hold = l.find(room, token)
    local reason = @NOT_OURS
    if hold then
      reason = l.refuses(hold)
    end
    if reason then
      answer(@NOT_YOURS, reason)
      return
    end
    hold.ttl = ttl
    hold.expires = math.max(hold.expires, now + ttl * 1000)
    l.keep(room, hold)
    return hold.mode == 'x' and l.rivals(room) or l.waiters(room)
  end

  -- A server that refuses to give anybody anything takes back what it is given all the same. Half a grant is nobody's.
  local function hand_over(room)
    pcall(l.leave_open, room)
    if not pcall(l.settle, room) and #room.holds == 0 then
      call('DEL', room.key, room.h)
    end
  end

  function ops.release(token, keep, key)
    local room = l.enter(key)
    local hold, number = l.find(room, token)
    if hold then
      if hold.letter == 'k' then
        return answer(@RELEASED)
      end
      local was_live = hold.expires > now
      if was_live and keep > 0 then
        hold.letter = 'k'
        hold.expires = now + keep * 1000
        l.keep(room, hold)
        return answer(@RELEASED)
      end
      l.remove(room, number)
      hand_over(room)
      if was_live then
        return answer(@RELEASED)
      end
      -- Within its delay: it had ended, but its holder came back to say so.
      return answer(@NOT_YOURS, @EXPIRED)
    end
    if l.drop_place(room, token) then
      hand_over(room)
      return answer(@RELEASED)
    end
    answer(@NOT_YOURS, @NOT_OURS)
  end

  -- Nobody reads through more.
  local SHOWN_MAX = 1000
  -- As much as a token and the line behind it may have.
  local SHOWN_BYTES = 512

  -- A name as it stands: the time, kind of key, its time, its value, the record or records beside it, and the queue. The kind
  -- is `several` if readers or permits have it. Of a value that is none of ours only the beginning is read: it may be data.
  local function show(key)
    local h, q = side .. 'h:' .. key, side .. 'q:' .. key
    local kind = call('TYPE', key).ok
    local beside = call('TYPE', h).ok
    local value = ''
    if kind == 'string' then
      value = call('GETRANGE', key, 0, SHOWN_BYTES - 1)
      value = turn.owner(value) and call('GET', key) or value
    end
    if value == @PLACEHOLDER and beside == 'hash' then
      kind = 'several'
    end
    local owner = ''
    if kind == 'hash' then
      owner = call('HKEYS', key)[1] or ''
    end
    local records = {}
    if beside == 'string' then
      local record = call('GET', h)
      records = { '', string.match(record, '^f%d+ %d+ (.*)$') or record }
    elseif beside == 'hash' or beside ~= 'none' and (kind == 'none' or value == @PLACEHOLDER) then
      -- Of something else it fails, as whoever asks for the name does: it must not look free.
      records = call('HGETALL', h)
    end
    answer(@DONE)
    answer(now, kind, call('PTTL', key), value, owner)
    answer(records, call('LRANGE', q, 0, 2 * SHOWN_MAX - 1))
  end

  -- Read without changing anything, so that a look never hands a lease over.
  function ops.look()
    show(turn.next_key(turn))
  end

  -- x how: ends leases against their holders' will; at once, or by refusing renewals. Answers what was there before.
  function ops.break_lease()
    local is_now, key = ARGV[turn.at] == 'now', turn.next_key(turn)
    turn.at = turn.at + 1
    local room = l.enter(key)
    if room.foreign and not is_now then
      -- Another library's lease cannot be told to end; it can be deleted.
      return answer(@BUSY)
    end
    show(key)
    if room.foreign then
      call('DEL', key)
      room.foreign = nil
      return l.settle(room)
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
  end

  return ops
end

-- Those functions, made at the first need of a call.
local function slow(turn)
  if not turn.ops then
    turn.ops = turn.slow_operations(turn)
  end
  return turn.ops
end
