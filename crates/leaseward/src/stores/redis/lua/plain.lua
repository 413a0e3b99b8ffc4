-- What runs all the time: asks, renewals, releases and hand-overs of exclusive leases about which there is nothing unusual.
-- What is unusual is answered with ODD, unchanged, and goes to the careful script (the other files), which does the same
-- and more; `head.lua` says what stands in which key. What costs are the calls to the server, most of all while its caches
-- are cold: so there are as few as can be, and each does as much as it can.
--
-- KEYS       as in the careful script, one lock key for each operation
-- ARGV[1..4] as in the careful script; leases are handed over, so `never` does not come here
-- ARGV[5]    a|r if it is one ask or one release; h if it is a release, and behind it an ask that queues for the same name;
--            '1' if they are many, and no name stands there twice: then operations of one kind are looked at, and freed, all
--            at once, and one that is odd is odd by itself; else '0'
-- ARGV[6..]  runs of operations of one kind: a letter, how many, what they have in common, then their tokens
--            a|q many ttl_ms value count: as in `operations.lua`, with count fences each | n many ttl_ms | r many
--            None asks who has a place already, or may have one: its client knows, and it is not looked for here.
--
-- Answers only what is not plain, in any order: the number of the operation, a code, its fields. Asks whose fences follow
-- each other are answered together, at the first of them. What is not answered was renewed, with nobody waiting, or
-- released. Where one is answered twice, the later counts. Nothing at all if all is plain; and a text, which costs less than
-- a list, for the most usual: of one ask that was granted its fence; of the ask that queued behind a hand-over the newest
-- fence, how many are ahead, how long the lease lasts, and whose it is.
--
-- Nothing here raises an error, which would leave all operations without an answer: what may fail is tried, and what was
-- refused before it changed anything is odd.
local argv, names, try, side = ARGV, KEYS, redis.pcall, ARGV[1]
-- The clock and the newest fence, once they were read.
local now, now_text, last
-- How long something now stands beside lock keys, if it was made to, in milliseconds.
local beside_ms = 0
-- What is known of one name without looking: its key, what that holds, and the time it has left.
local known, held, left
local byte, find = string.byte, string.find

-- The most usual, straight through: without the functions below, which every call would have to make anew.
if argv[5] == 'r' or argv[5] == 'h' then
  local key, token = names[2], argv[8]
  held = try('GET', key)
  held = type(held) == 'string' and held or ''
  local from, upto = find(held, token, 1, true)
  local letter = from == 1 and byte(held, upto + 1) == 10 and byte(held, upto + 2)
  if letter == 115 and not argv[9] and type(try('DEL', key)) == 'number' then
    return
  end
  if letter == 119 then
    local time = redis.call('TIME')
    local q, micros = side .. 'q:' .. key, time[2]
    micros = time[1] .. (#micros == 6 and micros or string.sub('00000' .. micros, -6))
    -- A server without memory to spare refuses this, before anything has changed.
    local before = try('SET', names[1], micros, 'GET')
    if not before or type(before) == 'string' and #before == #micros and before < micros then
      local next = try('LPOP', q, '2')
      local to, place = next and next[1], next and next[2]
      local ttl, seen, client, value
      if place then
        ttl, seen, client, value = string.match(place, '^x 0 (%d+) 1 0 %d+ (%d+) (%S+)\n(.*)$')
      end
      local given, length, asker = ttl, tonumber(ttl or 0), argv[14]
      if length > @HANDED_MAX_MS then
        given, length = '@HANDED_MAX_MS', @HANDED_MAX_MS
      end
      last = tonumber(micros)
      if ttl and seen + length * 1000 > last then
        local places = asker and try('RPUSH', q, asker, 'x 0 ' .. argv[11] .. ' ' .. argv[13] .. ' 0 ' .. micros .. ' ' .. micros
          .. ' ' .. argv[2] .. '\n' .. argv[12])
        local has_joined, waiting = type(places) == 'number', nil
        if has_joined then
          waiting = places / 2 - 1
        else
          waiting = try('LLEN', q) / 2
        end
        -- Who keeps the queue alive: `script.rs` says why that is enough.
        if waiting == 0 and has_joined or waiting > 0 and last - seen > last % @WINDOW_US then
          try('PEXPIRE', q, '@QUEUE_MS')
          local lasts = try('PTTL', side .. 'beside')
          if type(lasts) ~= 'number' or lasts < @QUEUE_MS then
            try('SET', side .. 'beside', '', 'PX', 2 * @QUEUE_MS)
          end
        end
        try('SET', key, to .. ((has_joined or waiting > 0) and '\nw' or '\ns') .. ttl .. ' ' .. micros .. ' 1 ' .. micros .. '\n'
          .. value, 'PX', given, 'GET')
        try('PUBLISH', 'leaseward:c:' .. client, 'G ' .. micros .. ' 1 ' .. given .. ' -1 ' .. waiting .. ' ' .. to .. '\n' .. key)
        if has_joined then
          return micros .. ' ' .. waiting .. ' ' .. given .. ' ' .. string.sub(to, 34)
        end
        return asker and { 2, @ODD } or nil
      end
      -- There is nobody, or somebody who is dead or wants something else: as before.
      last = nil
      if before then
        try('SET', names[1], before)
      else
        try('DEL', names[1])
      end
      if place then
        try('LPUSH', q, place, to)
        try('PEXPIRE', q, '@QUEUE_MS')
        beside_ms = @QUEUE_MS
      end
    elseif type(before) == 'string' then
      -- Nearly never: the clock is behind, or this is no fence.
      try('SET', names[1], before)
    end
  end
  known = key
elseif argv[5] == 'a' and argv[10] == '1' and try('EXISTS', names[2], side .. 'h:' .. names[2], side .. 'q:' .. names[2]) == 0 then
  local key, token, ttl, time = names[2], argv[11], argv[8], redis.call('TIME')
  local micros = time[2]
  micros = time[1] .. (#micros == 6 and micros or string.sub('00000' .. micros, -6))
  local before = try('SET', names[1], micros, 'GET')
  if not before or type(before) == 'string' and #before == #micros and before < micros then
    if not try('SET', key, token .. '\ns' .. ttl .. ' ' .. micros .. ' 1 ' .. micros .. '\n' .. argv[9], 'PX', ttl, 'GET') then
      return micros
    end
  elseif type(before) == 'string' then
    -- Nearly never: the clock is behind, or this is no fence.
    try('SET', names[1], before)
  end
end

local stride, is_distinct, out, n, at, k, number = tonumber(argv[4]), argv[5] ~= '0' and argv[5] ~= 'h', {}, 0, 6, 2, 0
-- Whether one was odd, and all behind it come later, so that they keep their order; who has taken a place, and
-- in which queues the first is alive.
local is_over, joined = false, {}

-- Microseconds as text, in halves: `head.lua` says why.
local function text(micros)
  local low = micros % 10000000
  return string.format('%d%07d', (micros - low) / 10000000, low)
end

local function read_clock()
  local time = redis.call('TIME')
  local micros = time[2]
  now = time[1] * 1000000 + micros
  now_text = time[1] .. (#micros == 6 and micros or string.sub('00000' .. micros, -6))
end

-- Reserves fences: above all given out before, and not below the clock. The first, and the same as text; nothing if they
-- are refused.
local function reserve(count)
  if not now then
    read_clock()
  end
  local first = last and last >= now and last + 1 or now
  local before = try('SET', names[1], text(first + count - 1), 'GET')
  if type(before) == 'table' then
    return
  end
  if not last and before and not (#before == #now_text and before < now_text) then
    -- Nearly never: the clock is behind, or this is no fence, which counts for nothing.
    local newest = #before <= @FENCE_DIGITS and tonumber(string.match(before, '^%d+$'))
    if newest and newest >= first then
      try('SET', names[1], text(newest + count))
      first = newest + 1
    end
  end
  last = first + count - 1
  return first, first == now and now_text or text(first)
end

while argv[at] do
  local letter, many, keys = argv[at], tonumber(argv[at + 1]), nil
  at = at + 2
  if letter == 'a' or letter == 'q' then
    local ttl, value, count = argv[at], argv[at + 1], argv[at + 2]
    local first, first_text
    at = at + 3
    if is_distinct and many > 1 then
      keys = {}
      for m = 1, many do
        keys[m] = names[k + (m - 1) * stride]
      end
      -- Most of the time nothing stands beside any lock key: then there is nothing but those to look at.
      keys[many + 1] = side .. 'beside'
      local is_free = try('EXISTS', unpack(keys)) == 0
      if not is_free and try('EXISTS', keys[many + 1]) == 1 then
        local m, to_h, to_q = many, side .. 'h:', side .. 'q:'
        for i = 1, many do
          keys[m + 1], keys[m + 2] = to_h .. keys[i], to_q .. keys[i]
          m = m + 2
        end
        is_free = try('EXISTS', unpack(keys)) == 0
      end
      if is_free then
        first, first_text = reserve(many * count)
      end
    end
    if first then
      out[n + 1], out[n + 2], out[n + 3], out[n + 4] = number + 1, @RUN, many, first
      n, k = n + 4, k + many * stride
      -- All have the fence of the first in what they hold, and two letters for how many are before it in the run: printing
      -- each fence would be a tenth of all work.
      local head, tail, m = '\ns' .. ttl .. ' ' .. first_text, ' ' .. count .. ' ' .. now_text .. '\n' .. value, 1
      local high, low, char = 64, 64, string.char
      for i = at, at + many - 1 do
        number = number + 1
        -- Asking for the value before, which is none, is cheaper than being answered that it is all right.
        if try('SET', keys[m], argv[i] .. head .. char(high, low) .. tail, 'PX', ttl, 'GET') then
          out[n + 1], out[n + 2] = number, @ODD
          n = n + 2
        end
        m, low = m + 1, low + 1
        if low == 64 + @LETTERS then
          high, low = high + 1, 64
        end
      end
      at, many = at + many, 0
    end
    for _ = 1, many do
      local key, token = names[k], argv[at]
      local h, q, is_odd, is_free = side .. 'h:' .. key, side .. 'q:' .. key, true, false
      k, at, number = k + stride, at + 1, number + 1
      if known ~= key and not is_over then
        known = nil
        is_free = is_distinct and try('EXISTS', key, h, q) == 0
        if not is_free then
          held = try('GET', key)
          if type(held) == 'string' then
            known, left = key, try('PTTL', key)
          else
            is_free = not is_distinct and try('EXISTS', key, h, q) == 0
          end
        end
      end
      if is_free then
        local fence = reserve(tonumber(count))
        if fence and not try('SET', key, token .. '\ns' .. ttl .. ' ' .. text(fence) .. ' ' .. count .. ' ' .. now_text .. '\n'
            .. value, 'PX', ttl, 'GET') then
          out[n + 1], out[n + 2], out[n + 3], out[n + 4] = number, @RUN, 1, fence
          n, is_odd = n + 4, false
        end
      elseif known == key and type(left) == 'number' and left >= 0 then
        -- Held by one of ours, by all appearances.
        local owner, state, before = string.match(held, '^(@TOKEN)\n([swd])%d+ %d+(%S*) %d+ %d+\n')
        if owner and #before ~= 0 and #before ~= 2 then
          owner = nil
        end
        local beside, delay, holder = nil, 0, owner
        if state == 'd' then
          beside = try('GET', h)
          state, delay, holder = string.match(type(beside) == 'string' and beside or '', '^(%a)%d+ %d+ %d+ (%d+) %d+ ([^\n]*)\n')
        end
        local is_ours = owner and owner ~= token and owner == holder
        if is_ours and letter == 'a' and state == 's' then
          out[n + 1], out[n + 2], out[n + 3], out[n + 4], out[n + 5], out[n + 6], out[n + 7], out[n + 8] =
            number, @BUSY, 0, string.sub(owner, 34), 'x', 0, left, left > 1 and left or 1
          n, is_odd = n + 8, false
        elseif is_ours and letter == 'q' then
          if not now then
            read_clock()
          end
          if not last then
            local newest = try('GET', names[1])
            last = not newest and 0
              or type(newest) == 'string' and #newest <= @FENCE_DIGITS and tonumber(string.match(newest, '^%d+$'))
          end
          if joined[q] == nil then
            -- The careful script drops those in front who have died.
            local first, lasts, seen = try('LINDEX', q, '1'), nil, nil
            if type(first) == 'string' then
              lasts, seen = string.match(first, '^%a %d+ (%d+) %d+ %d+ %d+ (%d+) ')
            end
            joined[q] = not first or seen and seen + math.min(lasts, @HANDED_MAX_MS) * 1000 > now
          end
          local length = last and joined[q] and not joined[token] and try('RPUSH', q, token, 'x 0 ' .. ttl .. ' ' .. count .. ' 0 '
            .. now_text .. ' ' .. now_text .. ' ' .. argv[2] .. '\n' .. value)
          if type(length) == 'number' then
            joined[token] = true
            if state == 's' and beside then
              try('SET', h, 'd' .. string.sub(beside, 2), 'PX', left > 1 and left or 1)
            elseif state == 's' then
              try('SETRANGE', key, #owner + 1, 'w')
              held = owner .. '\nw' .. string.sub(held, #owner + 3)
            end
            if length == 2 then
              try('PEXPIRE', q, '@QUEUE_MS')
              beside_ms = math.max(beside_ms, @QUEUE_MS)
            end
            out[n + 1], out[n + 2], out[n + 3], out[n + 4], out[n + 5], out[n + 6], out[n + 7], out[n + 8], out[n + 9] =
              number, @QUEUED, last, length / 2 - 1, string.sub(owner, 34), 'x', 0, left, state == 'k' and left or left + delay
            n, is_odd = n + 9, false
          end
        end
      end
      if is_odd then
        is_over, known = not is_distinct, nil
        out[n + 1], out[n + 2] = number, @ODD
        n = n + 2
      end
    end
  else
    local ttl, start, sound, values, gone, g
    if letter == 'n' then
      ttl = argv[at]
      sound = 's' .. ttl .. ' '
      start = '\n' .. sound
      at = at + 1
    end
    if is_distinct and many > 1 then
      keys, gone, g = {}, {}, 0
      local m = 0
      for i = k, k + (many - 1) * stride, stride do
        m = m + 1
        keys[m] = names[i]
      end
      values = try('MGET', unpack(keys))
      local seen = 0
      while not ttl and seen < many do
        local one = values[seen + 1] or ''
        local from, upto = find(one, argv[at + seen], 1, true)
        if from ~= 1 or byte(one, upto + 1) ~= 10 or byte(one, upto + 2) ~= 115 then
          break
        end
        seen = seen + 1
      end
      if seen == many and type(try('DEL', unpack(keys))) == 'number' then
        -- Nothing is unusual about any of them.
        at, k, number, many = at + many, k + many * stride, number + many, 0
      end
    end
    for i = 1, many do
      local key, token, is_odd = names[k], argv[at], true
      k, at, number = k + stride, at + 1, number + 1
      if values then
        held = values[i] or ''
      elseif is_over then
        held = ''
      elseif known ~= key then
        held = try('GET', key)
        held = type(held) == 'string' and held or ''
      end
      known = nil
      local from, upto = find(held, token, 1, true)
      if from == 1 and byte(held, upto + 1) == 10 then
        local state, h, beside = byte(held, upto + 2), nil, nil
        if state == 100 then
          h = side .. 'h:' .. key
          beside = try('GET', h)
          beside = type(beside) == 'string' and beside or ''
          state = byte(beside)
        end
        if ttl then
          -- Written whatever comes of it: what waits for replicas waits for a write.
          if not h then
            is_odd = find(held, start, upto + 1, true) ~= upto + 1 or try('PEXPIRE', key, ttl) ~= 1
          elseif string.sub(beside, 1, #sound) == sound and try('PEXPIRE', key, ttl) == 1 then
            try('PEXPIRE', h, ttl)
            beside_ms = math.max(beside_ms, tonumber(ttl))
            is_odd = false
          end
        else
          local is_waited_for, q, to = state == 119 or state == 100, nil, nil
          if is_waited_for then
            q = side .. 'q:' .. key
            to = try('LRANGE', q, '0', '1')
            if not to[1] and not to.err then
              state = 115
            end
          end
          if state == 115 then
            if not values then
              is_odd = type(h and try('DEL', key, h) or try('DEL', key)) == 'table'
            else
              g, is_odd = g + 1, false
              gone[g] = key
              if h then
                g = g + 1
                gone[g] = h
              end
            end
          elseif is_waited_for and to[1] then
            -- To the first in the queue, unless that one is dead or wants something else.
            local given, count, seen, client, value =
              string.match(to[2] or '', '^x %d+ (%d+) (%d+) 0 %d+ (%d+) (%S+)\n(.*)$')
            local first, asked
            if given then
              if not now then
                read_clock()
              end
              asked, left = given, tonumber(given)
              if left > @HANDED_MAX_MS then
                left, given = @HANDED_MAX_MS, '@HANDED_MAX_MS'
              end
              first = seen + left * 1000 > now and reserve(tonumber(count))
            end
            if first then
              local waiting, fence = try('LLEN', q) / 2 - 1, text(first)
              known = key
              held = to[1] .. (waiting > 0 and '\nw' or '\ns') .. asked .. ' ' .. fence .. ' ' .. count .. ' ' .. now_text .. '\n'
                .. value
              try('SET', key, held, 'PX', given, 'GET')
              if h then
                try('DEL', h)
              end
              try('LPOP', q, '2')
              if waiting > 0 and now - seen > now % @WINDOW_US then
                try('PEXPIRE', q, '@QUEUE_MS')
                beside_ms = math.max(beside_ms, @QUEUE_MS)
              end
              try('PUBLISH', 'leaseward:c:' .. client,
                'G ' .. fence .. ' ' .. count .. ' ' .. given .. ' -1 ' .. waiting .. ' ' .. to[1] .. '\n' .. key)
              is_odd = false
            end
          end
        end
      end
      if is_odd then
        is_over = not is_distinct
        out[n + 1], out[n + 2] = number, @ODD
        n = n + 2
      end
    end
    if gone and g > 0 and type(try('DEL', unpack(gone))) == 'table' then
      for i = number - many + 1, number do
        out[n + 1], out[n + 2] = i, @ODD
        n = n + 2
      end
    end
  end
end
if beside_ms > 0 then
  local lasts = try('PTTL', side .. 'beside')
  if type(lasts) ~= 'number' or lasts < beside_ms then
    try('SET', side .. 'beside', '', 'PX', 2 * beside_ms)
  end
end
return n > 0 and out or nil
