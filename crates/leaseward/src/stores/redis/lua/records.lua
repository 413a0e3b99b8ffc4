-- Leases and places as they are kept.
local function records(turn)
  local records = {}
  local call, format, now, text = redis.call, string.format, turn.now, turn.text

  -- Where clients of other libraries were seen, that stands before the record: 'f', when, and until when the key was
  -- last left free for them. So neither renewing nor releasing such a lease takes the short way.
  function records.read_exclusive(text)
    local seen, open, rest = string.match(text, '^f(%d+) (%d+) (.*)$')
    local letter, ttl, first, before, count, delay, since, token, value =
      string.match(rest or text, '^(%a)(%d+) (%d+)(%S*) (%d+) (%d+) (%d+) ([^\n]*)\n(.*)$')
    if before ~= '' then
      -- One of a run: its fence is that of the first, and the fences of so many before it. `plain.lua` says why.
      local high, low = string.byte(before, 1, 2)
      first = first + ((high - 64) * @LETTERS + low - 64) * count
    end
    return {
      strangers = seen and { seen = tonumber(seen), open = tonumber(open) } or false,
      token = token, mode = 'x', cap = 0, slot = -1, letter = letter == 'd' and 's' or letter,
      is_plain = not seen and letter == 's',
      ttl = tonumber(ttl), first = tonumber(first), count = tonumber(count), delay = tonumber(delay),
      since = tonumber(since), value = value,
    }
  end

  function records.write_exclusive(room, hold)
    local letter = hold.letter
    hold.is_plain = letter == 's' and hold.delay == 0 and not hold.strangers
      and hold.expires <= now + hold.ttl * 1000 and call('EXISTS', room.q) == 0
    if letter == 's' and not hold.is_plain then
      letter = 'd'
    end
    local seen = hold.strangers
    return (seen and 'f' .. text(seen.seen) .. ' ' .. text(seen.open) .. ' ' or '')
      .. format('%s%d %s %d %d %s ', letter, hold.ttl, text(hold.first), hold.count, hold.delay, text(hold.since))
      .. hold.token .. '\n' .. hold.value
  end

  function records.read_shared(token, text)
    local letter, mode, cap, slot, ttl, first, count, delay, since, expires, value =
      string.match(text, '^(%a) (%a) (%d+) (%-?%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)\n(.*)$')
    return {
      token = token, mode = mode, cap = tonumber(cap), slot = tonumber(slot), letter = letter, ttl = tonumber(ttl),
      first = tonumber(first), count = tonumber(count), delay = tonumber(delay), since = tonumber(since),
      expires = tonumber(expires), value = value,
    }
  end

  function records.write_shared(hold)
    return format('%s %s %d %d %d %s %d %d %s %s\n', hold.letter, hold.mode, hold.cap, hold.slot, hold.ttl,
      text(hold.first), hold.count, hold.delay, text(hold.since), text(hold.expires)) .. hold.value
  end

  -- Nothing if it cannot be read: that is nobody's place.
  function records.read_place(token, text)
    local mode, cap, ttl, count, delay, since, seen, client, value =
      string.match(text or '', '^(%a) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+)\n(.*)$')
    return mode and {
      token = token, mode = mode, cap = tonumber(cap), ttl = tonumber(ttl), count = tonumber(count),
      delay = tonumber(delay), since = since, expires = seen + math.min(ttl, @HANDED_MAX_MS) * 1000, client = client,
      value = value,
    }
  end

  return records
end
