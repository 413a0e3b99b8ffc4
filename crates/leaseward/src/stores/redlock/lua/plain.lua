-- What runs all the time: asks, renewals, releases of exclusive leases about which there is nothing unusual. Small, because
-- a server that does other things in between finds no more of it in its caches than it reads; without functions, because
-- they would be made anew by every call. What is unusual is answered with ODD, unchanged, and goes to the careful script
-- (the other files), which does the same and more. `room.lua` says what stands in which key.
--
-- KEYS       lock keys, one for each operation, none twice in a run
-- ARGV[1]    as in the careful script, as a text of 16 digits
-- ARGV[2..]  runs of operations of one kind: a letter, how many, what they have in common, then their tokens
--            a many ttl_ms first last forget_ms value | n many ttl_ms | r many | u many first
--
-- Answers with one number if all went as usual: every ask was granted as it was put, every lease renewed or given back. Else
-- with a code for each operation and its fields, behind the clock, if it was read; or, without clock and fields, with a
-- text, a byte for each: for a list the server needs a buffer of its own.
local names, argv, call, try, at, k = KEYS, ARGV, redis.call, redis.pcall, 2, 0
local out, n, now, floor, is_usual, is_terse = { 0 }, 1, nil, nil, true, true
while argv[at] do
  local letter, many, common = argv[at], tonumber(argv[at + 1]), argv[at + 2]
  if letter == 'a' then
    local first, last, forget, tail = argv[at + 3], argv[at + 4], argv[at + 5], '\n' .. argv[at + 6]
    local head, is_above = last .. 's' .. first .. '0000000000000000 ' .. common .. ' 0 ', argv[1] < first
    at = at + 7
    for i = k + 1, k + many do
      local key, token = names[i], argv[at]
      local b = 'leaseward:b:' .. key
      at, n = at + 1, n + 1
      -- Taken first and looked at then, which is two calls instead of three; if it was not to be had, all is put back.
      local taken = try('SET', key, token, 'NX', 'PX', common)
      if taken and not taken.err then
        local old = try('SET', b, head .. token .. tail, 'PXAT', forget, 'GET')
        if not old then
          if not now then
            local time = call('TIME')
            now = time[1] * 1000000 + time[2]
            out[1], is_usual, is_terse = now, false, false
            floor = tonumber(argv[1])
            if floor < now - @ALLOWANCE_MS * 1000 then
              floor = now - @ALLOWANCE_MS * 1000
            end
          end
          if tonumber(first) > floor then
            out[n] = @PLAIN
          else
            call('DEL', key, b)
            out[n], out[n + 1] = @LOW, floor
            n = n + 1
          end
        elseif is_above and type(old) == 'string' and string.sub(old, 1, 16) < first and string.byte(old, 17) == 115 then
          out[n] = @PLAIN
        else
          call('DEL', key)
          out[n], is_usual = @ODD, false
          if type(old) == 'string' then
            -- How long it was remembered for is lost. A delay counts from the last renewal, which the record has; without
            -- one, the end of the block is all that matters. What is no record stays, for as long as one of ours.
            local last, letter, rest, ms, delay = string.match(old, '^(%d+)(%l)(%d+) (%d+) (%d+) ')
            local is_ours, till = last and #last == 16 and #rest == 32, forget
            if is_ours then
              till = math.max(last + (ms + delay) * 1000, tonumber(string.sub(rest, 17)))
              till = math.floor(till / 1000) + 1 + @ALLOWANCE_MS
            end
            call('SET', b, old, 'PXAT', till)
            if is_ours and letter == 's' then
              is_terse = false
              out[n], out[n + 1] = @LOW, math.max(tonumber(last), tonumber(argv[1]))
              n = n + 1
            end
          end
        end
      else
        local owner = not taken and try('GET', key)
        is_usual = false
        if type(owner) == 'string' and owner ~= token and owner ~= @PLACEHOLDER then
          is_terse = false
          out[n], out[n + 1], out[n + 2] = @HELD, owner, call('PTTL', key)
          n = n + 2
        else
          out[n] = @ODD
        end
      end
    end
  else
    at = at + (letter == 'r' and 2 or 3)
    local keys, m, gone, g = {}, 0, {}, 0
    for i = k + 1, k + many do
      local key = names[i]
      keys[m + 1], keys[m + 2] = key, 'leaseward:b:' .. key
      m = m + 2
    end
    local values = call('MGET', unpack(keys))
    for i = 2, m, 2 do
      local key, b, owner, ballot, token, code = keys[i - 1], keys[i], values[i - 1], values[i], argv[at], @ODD
      at, n = at + 1, n + 1
      local state = owner == token and ballot and string.byte(ballot, 17)
      if letter == 'r' then
        if state == 115 then
          g = g + 1
          gone[g], code = key, @RELEASED
        end
      elseif letter == 'n' then
        if state == 115 and string.sub(ballot, 51, 51 + #common) == common .. ' ' then
          call('PEXPIRE', key, common)
          -- A ballot ahead of the clock is remembered for longer, by more than this lets it be ahead.
          if call('PTTL', b) < common + @ALLOWANCE_MS then
            call('PEXPIRE', b, common + @ALLOWANCE_MS)
          end
          code = @RENEWED
        end
      else
        if state and string.sub(ballot, 18, 33) == common then
          g = g + 1
          gone[g] = key
          if state ~= 115 then
            -- It is not odd: nobody hears the answer. The name is free from now on.
            call('SET', b, string.sub(ballot, 1, 16) .. 's' .. common .. '0000000000000000' .. string.sub(ballot, 50), 'KEEPTTL')
          end
        end
        -- What another attempt has, or somebody else, stays as it is.
        code = @DONE
      end
      out[n], is_usual = code, is_usual and code ~= @ODD
    end
    if g > 0 then
      call('DEL', unpack(gone))
    end
  end
  k = k + many
end
if is_usual then
  return @USUAL
end
if is_terse then
  return string.char(unpack(out, 2, n))
end
return out
