-- What runs all the time: asks, renewals, releases of exclusive leases about which there is nothing unusual. Small, because
-- a server that does other things in between finds no more of it in its caches than it reads; without functions, because
-- they would be made anew by every call. What is unusual is answered with ODD, unchanged, and goes to the careful script
-- (the other files), which does the same and more. `room.lua` says what stands in which key.
--
-- KEYS       lock keys, one for each operation, none twice
-- ARGV[1]    as in the careful script, as a text of 16 digits
-- ARGV[2..]  a token ttl_ms first last forget_ms value | n token ttl_ms | r token | u token first
local call, try, at = redis.call, redis.pcall, 2
-- The first answer is the clock, if it was read. Without it, and without fields, answers are told as one text, a byte for
-- each: for a list the server needs a buffer of its own.
local out, n, now, floor, is_terse = { 0 }, 1, nil, nil, true
for k = 1, #KEYS do
  local key, letter, token = KEYS[k], ARGV[at], ARGV[at + 1]
  local b = 'leaseward:b:' .. key
  if letter == 'a' then
    local ttl, first, last, forget, value = ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5], ARGV[at + 6]
    at = at + 7
    -- Taken first and looked at then, which is two calls instead of three; if it was not to be had, all is put back.
    local taken = try('SET', key, token, 'NX', 'PX', ttl)
    if taken and not taken.err then
      local old = try('SET', b, last .. 's' .. first .. '0000000000000000 ' .. ttl .. ' 0 ' .. token .. '\n' .. value, 'PXAT',
        forget, 'GET')
      if not old then
        if not now then
          local time = call('TIME')
          now = time[1] * 1000000 + time[2]
          out[1], is_terse = now, false
          floor = tonumber(ARGV[1])
          if floor < now - @ALLOWANCE_MS * 1000 then
            floor = now - @ALLOWANCE_MS * 1000
          end
        end
        if tonumber(first) > floor then
          n = n + 1
          out[n] = @PLAIN
        else
          call('DEL', key, b)
          out[n + 1], out[n + 2] = @LOW, floor
          n = n + 2
        end
      elseif type(old) == 'string' and string.sub(old, 1, 16) < first and ARGV[1] < first and string.byte(old, 17) == 115 then
        n = n + 1
        out[n] = @PLAIN
      else
        call('DEL', key)
        n = n + 1
        out[n] = @ODD
        if type(old) == 'string' then
          local ms, delay = string.match(old, '^ (%d+) (%d+)', 50)
          call('SET', b, old, 'PXAT', string.sub(old, 1, 13) + 1 + ms + delay + @ALLOWANCE_MS)
          if string.byte(old, 17) == 115 then
            is_terse = false
            out[n], out[n + 1] = @LOW, math.max(tonumber(string.sub(old, 1, 16)), tonumber(ARGV[1]))
            n = n + 1
          end
        end
      end
    else
      local owner = not taken and try('GET', key)
      n = n + 1
      if type(owner) == 'string' and owner ~= token and owner ~= @PLACEHOLDER then
        is_terse = false
        out[n], out[n + 1], out[n + 2] = @HELD, owner, call('PTTL', key)
        n = n + 2
      else
        out[n] = @ODD
      end
    end
  else
    local values = call('MGET', key, b)
    local owner, ballot = values[1], values[2]
    n = n + 1
    out[n] = @ODD
    if letter == 'r' then
      at = at + 2
      if owner == token and ballot and string.byte(ballot, 17) == 115 then
        call('DEL', key)
        out[n] = @RELEASED
      end
    elseif letter == 'n' then
      local ttl = ARGV[at + 2]
      at = at + 3
      if owner == token and ballot and string.byte(ballot, 17) == 115 and string.sub(ballot, 51, 51 + #ttl) == ttl .. ' ' then
        call('PEXPIRE', key, ttl)
        -- A ballot ahead of the clock is remembered for longer, by more than this lets it be ahead.
        if call('PTTL', b) < ttl + @ALLOWANCE_MS then
          call('PEXPIRE', b, ttl + @ALLOWANCE_MS)
        end
        out[n] = @RENEWED
      end
    else
      local first = ARGV[at + 2]
      at = at + 3
      if owner == token and ballot and string.sub(ballot, 18, 33) == first then
        call('DEL', key)
        if string.byte(ballot, 17) ~= 115 then
          -- It is not odd: nobody hears the answer. The name is free from now on.
          call('SET', b, string.sub(ballot, 1, 16) .. 's' .. first .. '0000000000000000' .. string.sub(ballot, 50), 'KEEPTTL')
        end
      end
      -- What another attempt has, or somebody else, stays as it is.
      out[n] = @DONE
    end
  end
end
if is_terse then
  return string.char(unpack(out, 2, n))
end
return out
