-- A name with everything that is known about it: who holds it, who waits. Mirrors the memory store, which is the reference.
local function library(turn)
  local lib = {}
  local call, format = redis.call, string.format
  local now, side, client, handover, text = turn.now, turn.side, turn.client, turn.handover, turn.text

  local function answer(...)
    turn.answer(turn, ...)
  end

  local function ms_until(moment)
    local left = math.ceil((moment - now) / 1000)
    return left > 1 and left or 1
  end

  -- How long what stands beside the lock key lasts, and the queue.
  local function expire_beside(room, ms)
    call('PEXPIRE', room.h, ms)
    turn.stands_beside(turn, ms)
  end

  local function keep_queue(room)
    turn.stands_beside(turn, @QUEUE_MS)
    return call('PEXPIRE', room.q, @QUEUE_MS)
  end

  local records = turn.records(turn)
  local read_lease, read_exclusive, write_exclusive = records.read_lease, records.read_exclusive, records.write_exclusive
  local read_shared, write_shared, read_place = records.read_shared, records.write_shared, records.read_place

  local function handed(ttl)
    return ttl < @HANDED_MAX_MS and ttl or @HANDED_MAX_MS
  end

  -- Clients of other libraries poll: to them a name with a queue of ours never looks free. Where one held it within the
  -- last minute, releases leave the key free for a fifth of all time. The moments grow with the time since it was there,
  -- because moments of one length at one pace are missed for ever by whoever polls at the same pace: from 10 ms, below
  -- which going back and forth costs more than waiting, to 200 ms, which is as long as most pause between attempts.
  -- With `handover=never` each release does, until the first in line has been told. What is known of them stands in the
  -- record of whoever of ours holds the name, else beside the places in the queue.
  local SEEN_US, GROWTH, SHARE, OPEN_MIN_US, OPEN_MAX_US = 60000000, 8, 4, 10000, 200000

  local function is_recent(seen)
    return seen and now - seen.seen <= SEEN_US
  end

  local function strangers(room)
    if room.strangers == nil then
      local notes = call('HMGET', room.p, '!f', '!o')
      room.strangers = (notes[1] or notes[2]) and
        { seen = tonumber(notes[1] or 0), open = tonumber(notes[2] or 0) }
    end
    return room.strangers
  end

  local function note_open(room)
    local seen = room.strangers
    call('HSET', room.p, '!f', text(seen.seen), '!o', text(seen.open))
    call('PEXPIRE', room.p, @QUEUE_MS)
  end

  -- When the name is free of a lease: at its end, or later if its holder vanished and a delay was asked for.
  local function blocks_until(hold)
    return hold.letter == 'k' and hold.expires or hold.expires + hold.delay * 1000
  end

  local function load_exclusive(room, hold)
    room.strangers = hold.strangers
    local left = call('PTTL', room.key)
    if left == -2 then
      -- Its time is over. What is left of its record is the delay it asked for, if it did.
      if hold.delay == 0 then
        call('DEL', room.h)
        return
      end
      hold.expires = math.min(now, now + (call('PTTL', room.h) - hold.delay) * 1000)
    elseif left == -1 then
      -- Somebody took the expiry away by hand: it is a lease all the same.
      call('PEXPIRE', room.key, hold.ttl)
      expire_beside(room, hold.ttl + hold.delay)
      hold.expires = now + hold.ttl * 1000
    else
      hold.expires = now + left * 1000
    end
    room.holds[1] = hold
  end

  local function load_shared(room)
    local is_there = call('EXISTS', room.key) == 1
    local all, ended, blocked = call('HGETALL', room.h), {}, 0
    for i = 1, #all, 2 do
      local hold = read_shared(all[i], all[i + 1])
      if not is_there and hold.expires > now then
        hold.expires = now
        ended[#ended + 1] = hold
      end
      blocked = math.max(blocked, blocks_until(hold))
      room.holds[#room.holds + 1] = hold
    end
    if ended[1] then
      -- Somebody deleted the key by hand. They have ended for good: another who comes must not revive them.
      expire_beside(room, ms_until(blocked))
      for _, hold in ipairs(ended) do
        call('HSET', room.h, hold.token, write_shared(hold))
      end
    end
    table.sort(room.holds, function(a, b) return a.first < b.first end)
  end

  -- Reads a name. What is held by others is `foreign`: its kind, and how long it lasts (-1: for ever).
  function lib.load(key)
    local room = { key = key, h = side .. 'h:' .. key, q = side .. 'q:' .. key, p = side .. 'p:' .. key, holds = {} }
    local kind = call('TYPE', key).ok
    if kind == 'string' or kind == 'none' then
      local values = call('MGET', key, room.h)
      local value, beside = values[1], values[2]
      local lease, hold = value and read_lease(value), beside and read_exclusive(beside)
      if not hold and (value == @PLACEHOLDER or not value) and call('EXISTS', room.h) == 1 then
        load_shared(room)
      elseif hold and (not value or lease and lease.token == hold.token) then
        room.beside = beside
        if lease then
          hold.told_ttl, hold.told_letter = lease.told_ttl, lease.told_letter
        end
        load_exclusive(room, hold)
      else
        if hold then
          -- Of a lease that is over.
          call('DEL', room.h)
        end
        if lease then
          if lease.told_letter == 'd' then
            -- What was to be known of it is lost: deleted by hand, or evicted. Perhaps it was broken: it is not lengthened.
            lease.letter = 'l'
          end
          load_exclusive(room, lease)
        elseif value then
          room.foreign = { kind = kind, left = call('PTTL', key) }
        end
      end
    else
      room.foreign = { kind = kind, left = call('PTTL', key) }
    end
    -- By key: what was known of clients of other libraries on a name that was released in this call, with nobody waiting.
    local left_behind = turn.left_behind and turn.left_behind[key]
    if left_behind and #room.holds == 0 then
      room.strangers = left_behind
      room.open = room.strangers.open > now and room.strangers.open or nil
    end
    return room
  end

  function lib.waiters(room)
    return call('LLEN', room.q) / 2
  end

  function lib.find(room, token)
    for i, hold in ipairs(room.holds) do
      if hold.token == token then
        return hold, i
      end
    end
  end

  function lib.admits(room, mode, cap)
    if room.foreign then
      return false
    end
    if mode == 'x' then
      return #room.holds == 0
    end
    for _, hold in ipairs(room.holds) do
      if hold.mode ~= mode or (mode == 'p' and hold.cap ~= cap) then
        return false
      end
    end
    return mode == 's' or #room.holds < cap
  end

  local function free_slot(room, mode)
    if mode ~= 'p' then
      return -1
    end
    local taken = {}
    for _, hold in ipairs(room.holds) do
      taken[hold.slot] = true
    end
    local slot = 0
    while taken[slot] do
      slot = slot + 1
    end
    return slot
  end

  -- The lock key says to others that somebody is in, for as long as the longest lease lasts. A full server refuses what may
  -- need memory only as the first write of a call: where a lease or a place is kept, the first is one of an expiry.
  local function keep_placeholder(room)
    local latest, blocked = 0, 0
    for _, hold in ipairs(room.holds) do
      latest = math.max(latest, hold.expires)
      blocked = math.max(blocked, blocks_until(hold))
    end
    expire_beside(room, ms_until(blocked))
    if latest > now then
      call('SET', room.key, @PLACEHOLDER, 'PX', ms_until(latest))
    else
      -- Those who are left have ended and only block the name yet: the one who lasted longest has gone.
      call('DEL', room.key)
    end
  end

  -- Writes what has become of an exclusive lease. Its lock key is there if its letter is known.
  local function keep_beside(room, hold)
    local letter, beside = write_exclusive(room, hold)
    if beside and not room.beside and call('EXISTS', room.h) == 1 then
      error({ err = 'WRONGTYPE where the record of a lease should be is something else' })
    end
    if hold.told_letter and letter ~= hold.told_letter then
      call('SETRANGE', room.key, #hold.token + 1, letter)
      hold.told_letter = letter
    end
    if beside then
      local ms = ms_until(blocks_until(hold))
      call('SET', room.h, beside, 'PX', ms)
      turn.stands_beside(turn, ms)
    elseif room.beside then
      call('DEL', room.h)
    end
    room.beside = beside
  end

  -- Writes a lease as it now stands.
  function lib.keep(room, hold)
    if hold.mode == 'x' then
      call('PEXPIRE', room.key, ms_until(hold.expires))
      keep_beside(room, hold)
    else
      keep_placeholder(room)
      call('HSET', room.h, hold.token, write_shared(hold))
    end
  end

  -- Takes out the lease with this number.
  function lib.remove(room, at)
    local hold = table.remove(room.holds, at)
    if hold.mode ~= 'x' and #room.holds > 0 then
      call('HDEL', room.h, hold.token)
      keep_placeholder(room)
    else
      call('DEL', room.key, room.h)
      room.beside = nil
    end
  end

  -- Gives a lease; the room must admit it. The first write is one that a full server refuses, before anything changed. It is
  -- among the holds once it stands.
  function lib.grant(room, ask, ttl)
    local count = ask.mode == 'x' and ask.count or 1
    local hold = {
      token = ask.token, mode = ask.mode, cap = ask.cap, slot = free_slot(room, ask.mode), letter = 's', ttl = ask.ttl,
      first = turn.reserve(turn, count), count = count, delay = ask.delay, since = now, expires = now + ttl * 1000,
      value = ask.value, strangers = is_recent(room.strangers) and room.strangers, told_ttl = ask.ttl,
    }
    if hold.mode == 'x' then
      if room.strangers then
        -- What is known of them is in its record from now on.
        call('DEL', room.p)
      end
      hold.told_letter = call('EXISTS', room.q) == 1 and 'w' or 's'
      call('SET', room.key, turn.lease(turn, hold.told_letter, hold.token, hold.ttl, hold.first, count, hold.value), 'PX', ttl)
      keep_beside(room, hold)
      room.holds[1] = hold
    else
      call('HSET', room.h, hold.token, write_shared(hold))
      room.holds[#room.holds + 1] = hold
      keep_placeholder(room)
    end
    return hold
  end

  local function drop_first(room)
    call('LPOP', room.q, 2)
    if keep_queue(room) == 0 then
      call('DEL', room.p)
    end
  end

  function lib.drop_place(room, token)
    local at = call('LPOS', room.q, token)
    if not at then
      return false
    end
    if at > 0 then
      keep_queue(room)
      -- No other place has an empty text.
      call('LSET', room.q, at, '')
      -- Not if somebody cut the list off behind its token.
      redis.pcall('LSET', room.q, at + 1, '')
      call('LREM', room.q, 2, '')
    else
      drop_first(room)
    end
    return true
  end

  -- A place, and at which number of the list it stands.
  function lib.place(room, token)
    local at = call('LPOS', room.q, token)
    local place = at and read_place(token, call('LINDEX', room.q, at + 1))
    if at and not place then
      lib.drop_place(room, token)
      return
    end
    return place, at
  end

  -- Keeps a place, or takes one at the end of the queue.
  function lib.keep_place(room, ask, place, at)
    local record = format('%s %d %d %d %d %s %s %s\n', ask.mode, ask.cap, ask.ttl, ask.count, ask.delay,
      place and place.since or text(now), text(now), client) .. ask.value
    if place then
      keep_queue(room)
      call('LSET', room.q, at + 1, record)
    end
    -- Before a new place: somebody may have put something else there, and a place without expiry would stay.
    if room.foreign then
      call('HSET', room.p, '!f', text(now))
    elseif room.open then
      note_open(room)
    end
    if not place then
      call('RPUSH', room.q, ask.token, record)
    end
    local hold = room.holds[1]
    if hold and hold.mode == 'x' and (hold.told_letter == 's' or room.beside and string.byte(room.beside) == 115) then
      keep_beside(room, hold)
    end
    keep_queue(room)
    call('PEXPIRE', room.p, @QUEUE_MS)
  end

  -- The first in the queue who is alive; drops dead ones before, and what is nobody's.
  local function front(room)
    while true do
      local first = call('LRANGE', room.q, 0, 1)
      if not first[1] then
        return
      end
      local place = read_place(first[1], first[2])
      if place and place.expires > now then
        return place
      end
      drop_first(room)
    end
  end

  -- Whoever may not be told asks again: a grant stands whatever becomes of its message.
  local function push(to, text)
    redis.pcall('PUBLISH', 'leaseward:c:' .. to, text)
  end

  -- Ends what has expired and gives the name to the next live waiters. Every operation begins and ends with this.
  function lib.settle(room)
    local at = 1
    while at <= #room.holds do
      if blocks_until(room.holds[at]) <= now then
        lib.remove(room, at)
      else
        at = at + 1
      end
    end
    if room.foreign or call('EXISTS', room.q) == 0 then
      return
    end
    if #room.holds == 0 then
      local seen = strangers(room)
      -- No moment is that long: the clock was set back, and this one would not end.
      if seen and seen.open > now and seen.open <= now + OPEN_MAX_US then
        room.open = seen.open
        return
      end
    end
    while true do
      local place = front(room)
      if not place or not lib.admits(room, place.mode, place.cap) then
        return
      end
      local hold = lib.grant(room, place, handed(place.ttl))
      drop_first(room)
      push(place.client, format('G %s %d %d %d %d ', text(hold.first), hold.count, handed(place.ttl), hold.slot,
        lib.waiters(room)) .. place.token .. '\n' .. room.key)
    end
  end

  -- How long the key is to be left free, in microseconds; 0 if it is not.
  local function opening(room)
    if handover == 'never' then
      return 1
    end
    local seen = handover == 'auto' and strangers(room)
    if not is_recent(seen) then
      return 0
    end
    local moment = math.min((now - seen.seen) / GROWTH, OPEN_MAX_US)
    local is_owed = moment >= OPEN_MIN_US and now - math.max(seen.seen, seen.open) >= SHARE * moment
    return is_owed and moment - moment % 1000 or 0
  end

  -- Has a client ask once the key has been free for long enough.
  function lib.wake(room, whom)
    push(whom, 'W ' .. math.floor((room.strangers.open - now) / 1000) .. ' ' .. room.key)
  end

  -- Called when somebody of ours has left. Who waits in the store is told when it is its turn; who asks in this very
  -- call finds what is left behind for it.
  function lib.leave_open(room)
    if #room.holds > 0 or room.foreign then
      return
    end
    local moment = opening(room)
    local place = moment > 0 and front(room)
    if moment > 0 then
      local seen = room.strangers or { seen = 0 }
      room.strangers = { seen = seen.seen, open = now + moment }
    end
    if place then
      note_open(room)
      lib.wake(room, place.client)
    elseif room.strangers and call('EXISTS', room.q) == 0 then
      turn.left_behind = turn.left_behind or {}
      turn.left_behind[room.key] = room.strangers
    end
  end

  -- How many others want the name. Clients of other libraries count while they are owed their moment, so that the
  -- lease is not passed on for ever inside one of our processes.
  function lib.rivals(room)
    return lib.waiters(room) + (opening(room) > 0 and 1 or 0)
  end

  -- Why the name is not free: who holds it, for how long, when asking again makes sense.
  function lib.standing(room, code, ahead, fence)
    if fence then
      answer(code, fence, ahead)
    else
      answer(code, ahead)
    end
    if room.foreign then
      return answer('!' .. room.foreign.kind, 'x', 0, room.foreign.left, room.foreign.left)
    end
    local first
    for _, hold in ipairs(room.holds) do
      if not first or blocks_until(hold) < blocks_until(first) then
        first = hold
      end
    end
    if first then
      return answer(string.sub(first.token, 34), first.mode, first.cap,
        math.max(0, math.ceil((first.expires - now) / 1000)), ms_until(blocks_until(first)))
    end
    answer('', 'x', 0, -1, room.open and ms_until(room.open) or -1)
  end

  -- Why its owner may not lengthen it, if that is so.
  function lib.refuses(hold)
    if hold.letter == 'b' then
      return @BROKEN
    elseif hold.letter == 'k' or hold.letter == 'l' then
      return @NOT_OURS
    elseif hold.expires <= now then
      return @EXPIRED
    end
  end

  function lib.enter(key)
    local room = lib.load(key)
    lib.settle(room)
    return room
  end

  return lib
end
