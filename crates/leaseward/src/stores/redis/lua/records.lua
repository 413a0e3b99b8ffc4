-- Leases and places as they are kept.
local function records(turn)
  local records = {}
  local call, format, now, text = redis.call, string.format, turn.now, turn.text

  -- An exclusive lease, by what its lock key holds. Nothing if it is none of ours.
  function records.read_lease(held)
    local token, letter, ttl, first, before, count, since, value =
      string.match(held, '^(@TOKEN)\n([swd])(%d+) (%d+)(%S*) (%d+) (%d+)\n(.*)$')
    if not token or #before ~= 0 and #before ~= 2 then
      return
    end
    if before ~= '' then
      -- One of a run: its fence is that of the first, and the fences of so many before it. `plain.lua` says why.
      local high, low = string.byte(before, 1, 2)
      first = first + ((high - 64) * @LETTERS + low - 64) * count
    end
    return {
      strangers = false, token = token, mode = 'x', cap = 0, slot = -1, letter = 's', ttl = tonumber(ttl),
      first = tonumber(first), count = tonumber(count), delay = 0, since = tonumber(since), value = value,
      told_ttl = tonumber(ttl), told_letter = letter,
    }
  end

  -- The same by its record. The letter: 's' sound, and nothing to look at; 'd' sound, but it asked for a delay, or somebody
  -- has queued behind it, or it lasts longer than its TTL; 'b' broken; 'k' kept for its minimum hold. Letter and TTL come
  -- first: one comparison tells a renewal that there is nothing to look at. Where clients of other libraries were seen, that
  -- stands before: 'f', when, and until when the key was last left free for them. So neither renewing nor releasing such a
  -- lease takes the short way.
  function records.read_exclusive(text)
    local seen, open, rest = string.match(text, '^f(%d+) (%d+) (.*)$')
    local letter, ttl, first, count, delay, since, token, value =
      string.match(rest or text, '^(%a)(%d+) (%d+) (%d+) (%d+) (%d+) ([^\n]*)\n(.*)$')
    return letter and {
      strangers = seen and { seen = tonumber(seen), open = tonumber(open) } or false,
      token = token, mode = 'x', cap = 0, slot = -1, letter = letter == 'd' and 's' or letter,
      ttl = tonumber(ttl), first = tonumber(first), count = tonumber(count), delay = tonumber(delay),
      since = tonumber(since), value = value,
    }
  end

  -- The letter of an exclusive lease as it is now, and what has to stand beside its lock key; nothing if there is no need.
  function records.write_exclusive(room, hold)
    local letter, seen = hold.letter, hold.strangers
    local is_sound = letter == 's' and hold.delay == 0 and not seen and hold.expires <= now + hold.ttl * 1000
    local is_waited_for = call('EXISTS', room.q) == 1
    if is_sound and hold.ttl == hold.told_ttl then
      return is_waited_for and 'w' or 's'
    end
    if letter == 's' and (is_waited_for or not is_sound) then
      letter = 'd'
    end
    return 'd', (seen and 'f' .. text(seen.seen) .. ' ' .. text(seen.open) .. ' ' or '')
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
