-- Everything that does not run all the time. Made when it is first needed in a call.
local function library(turn)
  local lib = {}
  local call, now, floor = redis.call, turn.now, turn.floor

  local function answer(...)
    turn.answer(turn, ...)
  end

  local function text(micros)
    local low = micros % 100000000
    return string.format('%08d%08d', (micros - low) / 100000000, low)
  end

  local function ms_until(moment)
    local left = math.ceil((moment - now) / 1000)
    return left > 1 and left or 1
  end

  local function read(record, is_reader)
    local head = is_reader and '^(%d+)(%a)(%d+) (%d+) (%d+) (%d+) (%d+)()\n(.*)$'
      or '^(%d+)(%a)(%d+) (%d+) (%d+) (%d+) (%d+) ([^\n]*)\n(.*)$'
    local last, letter, first, ttl, till, delay, since, token, value = string.match(record, head)
    return {
      last = tonumber(last), letter = letter, first = tonumber(first), ttl = tonumber(ttl), till = tonumber(till),
      delay = tonumber(delay), since = tonumber(since), token = token, value = value,
    }
  end

  local function write(hold, is_reader)
    local record = text(hold.last) .. hold.letter .. text(hold.first) .. ' ' .. hold.ttl .. ' ' .. text(hold.till) .. ' '
      .. hold.delay .. ' ' .. text(hold.since)
    return record .. (is_reader and '' or ' ' .. hold.token) .. '\n' .. hold.value
  end

  -- A name with everything that is known about it. `owner` is who holds it alone, `readers` those who share it.
  local function room(key)
    local room = { key = key, b = 'leaseward:b:' .. key, r = 'leaseward:r:' .. key, readers = {} }
    local values = call('MGET', key, room.b)
    room.owner, room.ballot = values[1], values[2] and read(values[2])
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

  -- The end of what this node may have granted for the name.
  local function bar(room)
    return room.ballot and room.ballot.last or floor
  end

  -- For a lease that lasts so long yet, if that is not its TTL.
  local function remember(room, ballot, lasts)
    room.ballot = ballot
    call('SET', room.b, write(ballot), 'PX', turn.memory(turn, ballot.last, (lasts or ballot.ttl) + ballot.delay))
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
    answer(@BUSY, string.sub(hold.token, 1, 8), string.sub(hold.token, 34), mode, left, free)
  end

  -- Whether the name is free for this ask: 'yes', 'mine', 'low', 'busy', or 'gone', and why.
  local function admits(room, it)
    local reader = reader_of(room, it.token)
    local mine = reader or (room.owner == it.token and room.ballot)
    if mine then
      if mine.letter == 'b' then
        return 'gone', @BROKEN
      end
      if mine.letter == 'k' or (reader and reader.till <= now) then
        return 'gone', @NOT_OURS
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
    local hold = {
      last = it.last, first = it.first, letter = 's', ttl = it.ttl, delay = it.delay, since = now, token = it.token,
      value = it.value, till = now + it.ttl * 1000,
    }
    if it.mode == 's' then
      room.readers[#room.readers + 1] = hold
      call('HSET', room.r, it.token, write(hold, true))
      hold_for_readers(room)
      remember(room, {
        last = it.last, first = it.first, letter = 's', ttl = it.ttl, delay = it.delay, since = now, token = '', value = '',
        till = 0,
      })
      return
    end
    if it.delay > 0 then
      hold.letter, hold.till = 'd', hold.till + it.delay * 1000
    end
    call('SET', room.key, it.token, 'PX', it.ttl)
    remember(room, hold)
  end

  function lib.ask(it, key)
    local room = room(key)
    local verdict, why = admits(room, it)
    if verdict == 'gone' then
      answer(@GONE, why)
    elseif verdict == 'busy' then
      busy(room)
    elseif verdict == 'low' then
      answer(@LOW, bar(room))
    elseif verdict == 'mine' then
      local hold = lengthen(room, it.token, it.ttl)
      answer(@GRANTED, hold.first, hold.last - hold.first + 1)
    else
      grant(room, it)
      answer(@GRANTED, it.first, it.last - it.first + 1)
    end
  end

  -- m token ttl first last value mode delay count: all of the next `count` names, or none.
  function lib.ask_all()
    local at = turn.at
    turn.at = at + 8
    local it = {
      token = ARGV[at], ttl = tonumber(ARGV[at + 1]), first = tonumber(ARGV[at + 2]), last = tonumber(ARGV[at + 3]),
      value = ARGV[at + 4], mode = ARGV[at + 5], delay = tonumber(ARGV[at + 6]),
    }
    local keys, rooms, verdicts, low, failed = {}, {}, {}, nil, nil
    -- All of them first: whatever fails below, the next operation finds its own.
    for i = 1, tonumber(ARGV[at + 7]) do
      keys[i] = turn.next_key(turn)
    end
    for i, key in ipairs(keys) do
      rooms[i] = room(key)
      local verdict, why = admits(rooms[i], it)
      verdicts[i] = verdict
      if verdict == 'low' then
        low = math.max(low or 0, bar(rooms[i]))
      elseif (verdict == 'busy' or verdict == 'gone') and not failed then
        failed = { room = rooms[i], verdict = verdict, why = why }
      end
    end
    if failed and failed.verdict == 'gone' then
      return answer(@GONE, failed.why)
    elseif failed then
      return busy(failed.room)
    elseif low then
      return answer(@LOW, low)
    end
    answer(@GRANTED_ALL, #rooms)
    for i, room in ipairs(rooms) do
      if verdicts[i] == 'mine' then
        local hold = lengthen(room, it.token, it.ttl)
        answer(hold.first, hold.last - hold.first + 1)
      else
        grant(room, it)
        answer(it.first, it.last - it.first + 1)
      end
    end
  end

  -- Why a token that holds nothing here does not.
  local function not_yours(room, token)
    local ballot = room.ballot
    local is_over = not room.owner and not room.stranger and #room.readers == 0
    if is_over and (not ballot or ballot.token == token) then
      -- A ballot is remembered for the allowance after its lease's time is over: before that, the lease was given back.
      local is_early = ballot and call('PTTL', room.b) > @ALLOWANCE_MS
      return answer(@NOT_YOURS, is_early and @FREE or @EXPIRED)
    end
    answer(@NOT_YOURS, is_over and @FREE or @NOT_OURS)
  end

  function lib.renew(token, ttl, key)
    local room = room(key)
    local verdict, why = admits(room, { token = token, first = 0 })
    if verdict == 'mine' then
      lengthen(room, token, ttl)
      answer(@RENEWED)
    elseif verdict == 'gone' then
      answer(@NOT_YOURS, why)
    else
      not_yours(room, token)
    end
  end

  function lib.release(token, keep, key)
    local room = room(key)
    local reader, at = reader_of(room, token)
    if reader and reader.letter ~= 'k' and reader.till > now then
      if keep > 0 then
        reader.letter, reader.till = 'k', now + keep * 1000
        call('HSET', room.r, token, write(reader, true))
      else
        table.remove(room.readers, at)
        call('HDEL', room.r, token)
      end
      hold_for_readers(room)
      return answer(@RELEASED)
    end
    local hold = room.ballot
    if reader or room.owner ~= token or (hold and hold.letter == 'k') then
      return not_yours(room, token)
    end
    if keep > 0 then
      call('PEXPIRE', key, keep)
    else
      call('DEL', key)
    end
    if hold then
      hold.letter, hold.delay, hold.till = keep > 0 and 'k' or 's', 0, 0
      remember(room, hold)
    end
    answer(@RELEASED)
  end

  -- Takes back what one attempt was granted, and nothing else: an attempt is known by its ballot.
  function lib.undo(token, first, key)
    local room = room(key)
    local reader, at = reader_of(room, token)
    local hold = reader or (room.owner == token and room.ballot)
    if hold and hold.first == first then
      if reader then
        table.remove(room.readers, at)
        call('HDEL', room.r, token)
        hold_for_readers(room)
      else
        call('DEL', key)
        hold.letter, hold.delay, hold.till = 's', 0, 0
        remember(room, hold)
      end
    end
    answer(@DONE)
  end

  local function show(room)
    local shown = {}
    local function add(hold, mode, left)
      shown[#shown + 1] = { hold.token, mode, hold.letter, hold.value, text(hold.first), text(hold.last), tostring(hold.ttl),
        tostring(hold.delay), text(hold.since), tostring(left) }
    end
    if room.stranger then
      local left = call('PTTL', room.key)
      shown[1] = { '!' .. room.stranger, 'x', 's', '', text(0), text(0), '0', '0', text(now), tostring(left) }
    elseif room.owner then
      add(room.ballot, 'x', call('PTTL', room.key))
    end
    for _, reader in ipairs(room.readers) do
      if reader.till > now then
        add(reader, 's', ms_until(reader.till))
      end
    end
    answer(#shown)
    for _, hold in ipairs(shown) do
      answer(hold)
    end
  end

  function lib.look()
    show(room(turn.next_key(turn)))
  end

  -- x when: breaks all leases on a name, now or by refusing to renew them; answers what was there before.
  function lib.break_leases()
    local when = ARGV[turn.at]
    turn.at = turn.at + 1
    local room = room(turn.next_key(turn))
    if room.stranger and when ~= 'now' then
      return answer(@BUSY)
    end
    answer(@DONE)
    show(room)
    if when == 'now' then
      call('DEL', room.key, room.r)
      if room.ballot then
        room.ballot.letter, room.ballot.delay, room.ballot.till = 's', 0, 0
        remember(room, room.ballot)
      end
      return
    end
    for _, reader in ipairs(room.readers) do
      if reader.letter ~= 'k' then
        reader.letter = 'b'
        call('HSET', room.r, reader.token, write(reader, true))
      end
    end
    local hold = room.owner and room.ballot
    if hold and hold.letter ~= 'k' then
      hold.letter, hold.till = 'b', now + (call('PTTL', room.key) + hold.delay) * 1000
      remember(room, hold)
    end
  end

  return lib
end
